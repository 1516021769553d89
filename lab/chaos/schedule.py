"""Which faults come, in which order and for how long: a function of the seed alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

SESSION_S = 6.0  # the default of canal.zookeeper.session.timeout

Metadata = Literal["FULL", "MINIMAL"]


@dataclass(frozen=True, slots=True)
class Setting:
    """What does not change during a run. gtid: whether canal-ha reads by GTID; metadata: binlog_row_metadata."""

    flavor: Literal["mysql", "mariadb"]
    gtid: bool
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Step:
    """Faults that begin together, in this order, and end together. number: from 1; seconds: how long they last."""

    number: int
    faults: tuple[str, ...]
    seconds: float

    @property
    def name(self) -> str:
        """Return the kind of the step."""
        return " + ".join(self.faults)

    def __str__(self) -> str:
        return f"{self.number:4}  {self.seconds:5.1f} s  {self.name}"


WHAT = {
    "kill": "SIGKILL of the running node",
    "stop": "orderly stop of the running node",
    "freeze": "SIGSTOP and SIGCONT of the running node",
    "expire": "the session of the running node is ended by somebody else",
    "cut": "the running node is cut off from ZooKeeper; all packets are held",
    "deaf": "the running node's requests reach ZooKeeper, no answer comes back",
    "mute": "the running node's requests do not reach ZooKeeper",
    "slow": "all links are slow, with jitter",
    "strand": "half-open connections on random links",
    "swizzle": "all links are cut one by one, and healed in another order",
    "flip": "bit flips in the binlog on its way to the nodes",
    "clock": "the wall clock of the running node steps by seconds up to an hour, and back",
    "disk": "the nodes cannot write to any file",
    "rolling": "the ZooKeeper servers restart one after another",
    "leader": "SIGKILL of the ensemble's leader",
    "quorum": "two of the three ZooKeeper servers are frozen",
    "hide": "the server that is read cannot be reached; the other one can",
    "crash": "SIGKILL of the source; on MySQL a torn transaction is left at the binlog's end",
    "switch": "SIGKILL of the source; the standby is promoted, the writer moves there",
    "ddl": "columns are added and dropped",
    "park": "a client stops asking until its stream is parked",
    "huge": "one huge transaction",
    "client-kill": "SIGKILL of the Python clients; they start again",
    "client-freeze": "SIGSTOP and SIGCONT of the Python clients",
}
"""Every kind of fault."""

_RECIPES: tuple[tuple[tuple[str, ...], tuple[float, ...]], ...] = (
    (("kill",), (0.5, 3.0, 8.0)),
    (("kill",), (8.0,)),
    (("stop",), (3.0,)),
    (("stop",), (0.5, 3.0)),
    (("freeze",), (0.5 * SESSION_S, SESSION_S, 2 * SESSION_S, 3 * SESSION_S)),
    (("expire",), (1.0,)),
    (("cut",), (2.0, 1.5 * SESSION_S)),
    (("deaf",), (2.0, 1.5 * SESSION_S)),
    (("mute",), (2.0, 1.5 * SESSION_S)),
    (("slow",), (5.0,)),
    (("slow", "kill"), (8.0,)),
    (("strand",), (5.0,)),
    (("swizzle",), (6.0,)),
    (("flip",), (4.0,)),
    (("clock",), (4.0, 8.0)),
    (("clock", "cut"), (8.0,)),
    (("disk", "ddl"), (4.0,)),
    (("disk", "kill"), (8.0,)),
    (("rolling",), (0.5,)),
    (("rolling", "kill"), (1.0,)),
    (("leader",), (3.0,)),
    (("quorum",), (3.0, 1.5 * SESSION_S)),
    (("hide",), (3.0, 8.0)),
    (("crash",), (0.5, 2.0)),
    (("huge", "crash"), (1.0,)),
    (("switch", "kill"), (8.0,)),
    (("switch",), (6.0,)),
    (("ddl", "kill", "ddl"), (8.0,)),
    (("ddl", "stop", "ddl"), (2.0,)),
    (("park", "ddl", "kill"), (8.0,)),
    (("huge", "kill"), (8.0,)),
    (("huge", "stop"), (2.0,)),
    (("client-kill",), (1.0,)),
    (("client-kill", "kill"), (2.0, 8.0)),
    (("client-freeze",), (2.0, 2 * SESSION_S)),
)
"""The steps and their possible lengths in seconds. All come once before one comes again."""


def setting(seed: int) -> Setting:
    """Return the setting of a seed."""
    chance = random.Random(f"setting {seed}")
    return Setting(chance.choice(("mysql", "mariadb")), chance.random() < 0.5, chance.choice(("FULL", "MINIMAL")))


def steps(seed: int, only: str = "") -> Iterator[Step]:
    """Yield the endless steps of a seed. only: the name of a step, to repeat it alone."""
    chance = random.Random(f"steps {seed}")
    recipes = [(faults, seconds) for faults, seconds in _RECIPES if only in ("", " + ".join(faults))]
    if not recipes:
        recipes = [(tuple(only.split(" + ")), (4.0, 8.0))]
    number = 0
    while True:
        chance.shuffle(recipes)
        for faults, seconds in recipes:
            number += 1
            yield Step(number, faults, chance.choice(seconds))


def text(seed: int, last: int, only: str = "", first: int = 1) -> str:
    """Return the setting and the steps first..last, last inclusive, one a line."""
    made = setting(seed)
    head = f"seed {seed}: {made.flavor}, {'GTIDs' if made.gtid else 'offsets'}, binlog_row_metadata={made.metadata}"
    return "\n".join([head, *map(str, islice(steps(seed, only), first - 1, last))])
