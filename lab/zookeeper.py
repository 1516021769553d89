"""ZooKeeper 3.8 from Debian's jars: one node, or an ensemble of three."""

import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from kazoo.client import KazooClient

from lab.certificates import Authority
from lab.ports import LOOPBACK, free_port
from lab.process import Process, StartFailed

# The jar's manifest names its dependencies except the logger.
_JAR = Path("/usr/share/java/zookeeper.jar")
_LOGGER = Path("/usr/share/java/slf4j-simple.jar")
_NETTY = Path("/usr/share/java/netty-codec.jar")  # the manifest lacks the part that TLS needs

HUNG_S = 15.0  # without a new session, after all servers are up

_SETTINGS = """\
tickTime=500
initLimit=20
syncLimit=10
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
4lw.commands.whitelist=*
admin.enableServer=false
standaloneEnabled=true
"""


@contextmanager
def session(hosts: str, **options: Any) -> Iterator[KazooClient]:
    """Yield a session of another program than ours, such as zkCli; options are KazooClient's."""
    client = KazooClient(hosts, **options)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def tls_settings(authority: Authority) -> tuple[int, str]:
    """Return a port, and the lines of zoo.cfg for TLS on it. The server asks for a certificate of the client."""
    port = free_port()
    return port, (
        f"secureClientPort={port}\nsecureClientPortAddress={LOOPBACK}\n"
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
        f"ssl.keyStore.location={authority.sign('localhost')}\nssl.keyStore.type=PEM\n"
        f"ssl.trustStore.location={authority.file}\nssl.trustStore.type=PEM\n"
    )


class ZooKeeper(Process):
    """One ZooKeeper process; a member of an ensemble if `members` names the servers.

    Session time-outs lie between 1 s and 60 s. Writes survive kill() because they are written, though not synced.
    hosts: connection string for kazoo and canal.zkServers.
    settings: further lines of zoo.cfg; java: further options of the JVM.
    """

    def __init__(
        self, *, my_id: int = 1, members: Sequence[str] = (), settings: str = "", java: Sequence[str] = ()
    ) -> None:
        super().__init__(f"zookeeper{my_id}", free_port())
        self.my_id = my_id
        self.members = tuple(members)
        self.settings = settings
        self.java = tuple(java)

    @property
    def hosts(self) -> str:
        """Return the connection string."""
        return self.address

    @staticmethod
    def missing() -> str:
        """Return what it needs and this machine lacks; "" if it has all."""
        if not _JAR.exists():
            return str(_JAR)
        return "" if shutil.which("java") else "java"

    def prepare(self) -> None:
        if missing := self.missing():
            raise StartFailed(f"{missing} is missing; run: bash deploy/install.sh")
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{self.my_id}\n")
        (self.directory / "zoo.cfg").write_text(
            f"{_SETTINGS}{self.settings}dataDir={data}\nclientPort={self.port}\nclientPortAddress={LOOPBACK}\n"
            + "".join(f"{member}\n" for member in self.members)
        )

    def command(self) -> Sequence[str]:
        return [
            "java",
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # halves the start time of these short-lived servers
            "-XX:-UsePerfData",
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            *self.java,
            "-cp",
            ":".join(map(str, (_JAR, _LOGGER, _NETTY))),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self.directory / "zoo.cfg"),
        ]

    def ready(self) -> bool:
        return self.mode() != ""

    def four_letters(self, word: str) -> str:
        """Send one of ZooKeeper's four-letter words; return the answer, or "" if none comes."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=2.0) as connection:
                connection.sendall(word.encode())
                answer = b""
                while part := connection.recv(65536):
                    answer += part
        except OSError:
            return ""
        return answer.decode(errors="replace")

    def mode(self) -> str:
        """Return leader, follower or standalone; "" while the node serves no clients."""
        for line in self.four_letters("srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ").strip()
        return ""


class Ensemble:
    """Three ZooKeeper nodes with one connection string; stop and pause single nodes through `nodes`.

    through: called with the ids of two nodes and the port at which the first one reaches the second one; returns the
        port that the first one uses instead. See proxy.py.
    """

    def __init__(self, through: Callable[[int, int, int], int] | None = None) -> None:
        ids = (1, 2, 3)
        ports = {my_id: (free_port(), free_port()) for my_id in ids}

        def member(seen_by: int, my_id: int) -> str:
            leading, election = ports[my_id]
            if through is not None and seen_by != my_id:
                leading = through(seen_by, my_id, leading)
            return f"server.{my_id}={LOOPBACK}:{leading}:{election}"

        self.nodes = tuple(
            ZooKeeper(my_id=seen_by, members=[member(seen_by, my_id) for my_id in ids]) for seen_by in ids
        )
        self.start_seconds = 0.0

    @property
    def hosts(self) -> str:
        """Return the connection string with all three nodes."""
        return ",".join(node.address for node in self.nodes)

    def start(self) -> Self:
        """Start all stopped nodes, and wait until each serves clients."""
        began = time.monotonic()
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_ready()
        self.start_seconds = time.monotonic() - began
        return self

    def stop(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.stop()

    def leader(self, timeout_s: float = 20.0) -> ZooKeeper:
        """Return the leader; wait for the end of an election."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for node in self.nodes:
                if node.alive() and node.mode() == "leader":
                    return node
            time.sleep(0.05)
        raise StartFailed(f"no leader within {timeout_s:.0f} s\n{self.nodes[0].log_tail()}")

    def serve_again(self) -> bool:
        """Wait until a new session can begin; restart the leader if none does. Return whether that was needed.

        ZooKeeper 3.8.0 can hang for good after the leader and a follower were paused for longer than syncLimit: all
        three servers say leader or follower, and no write is committed any more.
        """
        deadline = time.monotonic() + HUNG_S
        while time.monotonic() < deadline:
            client = KazooClient(self.hosts)
            try:
                client.start(timeout=2.0)
                return False
            except client.handler.timeout_exception:
                continue
            finally:
                client.stop()
                client.close()
        leader = self.leader()
        leader.kill()
        leader.start()
        self.leader()
        return True

    def followers(self) -> tuple[ZooKeeper, ...]:
        """Return the current followers."""
        return tuple(node for node in self.nodes if node.alive() and node.mode() == "follower")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.__exit__()
