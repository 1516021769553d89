"""The faults: each is a context that harms the stage when it begins and mends what it harmed when it ends.

chance: of the step; everything that a fault draws comes from it.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from kazoo.client import KazooClient

from lab.chaos.stage import HOLDING, PARKED_AFTER_S, PATIENCE_S, PLAIN, REST_S, Stage, drawn
from lab.cluster.readers import Reader
from lab.cluster.sessions import password_of
from lab.waiting import until

CLOCK_STEPS_S = (-3600, -30, -5, 5, 30, 3600)
FLIPS = 3
SHARE = 0.3
"""Of all links, how many a fault of random links takes."""

Fault = Callable[[Stage, random.Random], AbstractContextManager[None]]


@contextmanager
def kill(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Kill the running node; start it again."""
    node = stage.victim().member.node
    node.kill()
    yield
    node.launch()


@contextmanager
def stop(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Stop the running node in an orderly way; start it again."""
    node = stage.victim().member.node
    node.stop()
    assert node.exit_code == 0, f"{node.name} ended with code {node.exit_code}\n{node.log_tail()}"
    yield
    node.launch()


@contextmanager
def freeze(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Freeze the running node."""
    node = stage.victim().member.node
    node.pause()
    yield
    node.resume()


@contextmanager
def expire(stage: Stage, chance: random.Random) -> Iterator[None]:
    """End the session of the running node."""
    stage.victim()
    if running := stage.running():
        thief = KazooClient(stage.ensemble.hosts, client_id=(running[1], password_of(running[1])))
        thief.start()
        thief.stop()
        thief.close()
    yield


def _cut(*, there: bool, back: bool) -> Fault:
    @contextmanager
    def cut(stage: Stage, chance: random.Random) -> Iterator[None]:
        member = stage.victim().member
        for link in member.links.values():
            link.cut(there=there, back=back)
        yield
        member.heal()

    return cut


@contextmanager
def slow(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Delay all links by up to 50 ms, with jitter up to 50 ms."""
    for link in stage.links:
        link.delay(chance.uniform(0.0, 0.05), jitter_s=chance.uniform(0.0, 0.05))
    yield
    for link in stage.links:
        link.delay(0.0)


@contextmanager
def strand(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Make the connections of random links half-open."""
    links = drawn(chance, stage.links, SHARE)
    for link in links:
        link.strand()
    yield
    for link in links:
        link.heal()


@contextmanager
def swizzle(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Cut all links one by one; heal them in another order."""
    links = stage.links
    for link in drawn(chance, links, 1.0):
        link.cut()
        time.sleep(0.05)
    yield
    for link in drawn(chance, links, 1.0):
        link.heal()
        time.sleep(0.05)


@contextmanager
def flip(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Flip a bit in some pieces of the binlog on its way to a node."""
    for link in stage.source.links.values():
        link.flip(FLIPS)
    yield
    for link in stage.source.links.values():
        link.flip(0)


@contextmanager
def clock(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Step the wall clock of the running node."""
    wrong = stage.victim().clock
    wrong.step(chance.choice(CLOCK_STEPS_S))
    yield
    wrong.step(0)


@contextmanager
def disk(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Make every write of the nodes to a file fail, as on a full disk."""
    unlimited = resource.prlimit(os.getpid(), resource.RLIMIT_FSIZE)
    harmed = [attended.member.node.pid for attended in stage.nodes if attended.member.node.alive()]
    for pid in harmed:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, unlimited[1]))
    yield
    for attended in stage.nodes:
        if attended.member.node.alive():
            resource.prlimit(attended.member.node.pid, resource.RLIMIT_FSIZE, unlimited)


@contextmanager
def rolling(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Restart the ZooKeeper servers one after another, in random order."""
    for server in chance.sample(stage.ensemble.nodes, 3):
        server.kill()
        time.sleep(chance.uniform(0.0, 1.0))
        server.start()
    yield


@contextmanager
def leader(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Kill the leader of the ensemble; start it again."""
    server = stage.ensemble.leader()
    server.kill()
    yield
    server.start()


@contextmanager
def quorum(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Freeze two of the three ZooKeeper servers. The leader is restarted if ZooKeeper hangs behind that."""
    frozen = chance.sample(stage.ensemble.nodes, 2)
    for server in frozen:
        server.pause()
    yield
    for server in frozen:
        server.resume()
    stage.ensemble.leader(60.0)
    if stage.ensemble.serve_again():
        stage.remarks.append("ZooKeeper hung until its leader was restarted")


@contextmanager
def hide(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Cut the nodes off from the server that they read, which may be the standby."""
    link = max(stage.source.links.values(), key=lambda link: link.connections)
    link.cut()
    yield
    link.heal()


@contextmanager
def crash(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Kill the source; start it again."""
    stage.source.crash(chance)
    yield
    stage.source.recover()


@contextmanager
def switch(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Kill the source and promote the standby. The old source becomes the standby."""
    with stage.writer.turn:
        start = stage.source.promote()
        stage.writer.server = stage.source.primary
    yield
    stage.source.rejoin(start)


@contextmanager
def ddl(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Alter the table."""
    stage.writer.alter(chance.randint(1, 4))
    yield


@contextmanager
def park(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Make the holding client stop asking, and wait until its stream is parked."""
    stage.park()
    rests_to = time.monotonic() + REST_S
    time.sleep(PARKED_AFTER_S + 1.5)
    yield
    time.sleep(max(0.0, rests_to - time.monotonic()))


def huge(size_bytes: int) -> Fault:
    """Return the fault of one transaction of this size.

    When the next fault of the step begins, the transaction is being written, or committed and being delivered.
    """

    @contextmanager
    def write(stage: Stage, chance: random.Random) -> Iterator[None]:
        stage.writer.write_huge(size_bytes)
        if chance.random() < 0.5:
            until(lambda: not stage.writer.busy, seconds=PATIENCE_S, what="the commit of a huge transaction")
        time.sleep(chance.uniform(0.1, 1.5))
        yield

    return write


@contextmanager
def client_kill(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Kill the Python clients; start them again."""
    for name in (PLAIN, HOLDING):
        stage.clients[name].kill()
    yield
    for name in (PLAIN, HOLDING):
        stage.start_client(name)


@contextmanager
def client_freeze(stage: Stage, chance: random.Random) -> Iterator[None]:
    """Freeze the Python clients."""
    frozen = [client for client in stage.clients.values() if isinstance(client, Reader)]
    for client in frozen:
        client.process.send_signal(signal.SIGSTOP)
    yield
    for client in frozen:
        client.process.send_signal(signal.SIGCONT)


def faults(huge_bytes: int) -> dict[str, Fault]:
    """Return the fault of each kind in schedule.WHAT."""
    return {
        "kill": kill,
        "stop": stop,
        "freeze": freeze,
        "expire": expire,
        "cut": _cut(there=True, back=True),
        "deaf": _cut(there=False, back=True),
        "mute": _cut(there=True, back=False),
        "slow": slow,
        "strand": strand,
        "swizzle": swizzle,
        "flip": flip,
        "clock": clock,
        "disk": disk,
        "rolling": rolling,
        "leader": leader,
        "quorum": quorum,
        "hide": hide,
        "crash": crash,
        "switch": switch,
        "ddl": ddl,
        "park": park,
        "huge": huge(huge_bytes),
        "client-kill": client_kill,
        "client-freeze": client_freeze,
    }
