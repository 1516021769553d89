"""The source: a server that is written to, and a standby that replicates from it. They change roles."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path

from lab.chaos.schedule import Setting
from lab.mysql import MariaDB, MySQL, SqlServer
from lab.proxy import Link, Network
from lab.replica import Replica
from lab.waiting import until

CAUGHT_UP_S = 120.0
_HEADER_BYTES = 19  # of an event; its length is at 9
_DUMPS = (0x12, 0x1E)  # COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID


def asks_for_the_binlog(data: bytes) -> bool:
    """Return whether a client sends COM_BINLOG_DUMP here: its answer is protected by checksums."""
    return len(data) > 4 and data[3] == 0 and data[4] in _DUMPS and int.from_bytes(data[:3], "little") == len(data) - 4


class Source:
    """Two servers. links: server -> the link by which all nodes reach it; the standby has its own link."""

    def __init__(self, setting: Setting, network: Network) -> None:
        kind = MySQL if setting.flavor == "mysql" else MariaDB
        options = ["--log-replica-updates=ON", "--replica-net-timeout=5"]
        if setting.flavor == "mariadb":
            options = ["--log-slave-updates=ON", "--slave-net-timeout=5"]
        gtid = setting.gtid or setting.flavor == "mariadb"
        self.servers = tuple(
            kind(gtid=gtid, row_metadata=setting.metadata, server_id=number, extra=options) for number in (1, 2)
        )
        self.primary, self.standby = self.servers
        self.links: dict[SqlServer, Link] = {
            server: network.link(server.port, marks=asks_for_the_binlog) for server in self.servers
        }
        self.replication: dict[SqlServer, Link] = {server: network.link(server.port) for server in self.servers}

    def start(self, stack: ExitStack) -> None:
        """Start both and replicate. stack: ends them."""
        for server in self.servers:
            server.launch()
        for server in self.servers:
            stack.enter_context(server)
        # give the standby's journals other names and offsets than the primary's
        self.standby.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
        self._replicate(self.primary.position())

    def _replicate(self, start: tuple[str, int]) -> None:
        Replica(self.standby).follow(self.replication[self.primary].port, start)

    def caught_up(self) -> None:
        """Wait until the standby has applied all that the primary has written."""
        replica = Replica(self.standby)
        until(lambda: replica.position() == self.primary.position(), seconds=CAUGHT_UP_S, what="the standby")

    def promote(self) -> tuple[str, int]:
        """Kill the primary and let the standby take its place. Nobody may write meanwhile.

        Returns where the old primary must begin to replicate, for `rejoin`.
        """
        self.caught_up()
        self.primary.kill()
        Replica(self.standby).forget()
        self.primary, self.standby = self.standby, self.primary
        return self.primary.position()

    def rejoin(self, start: tuple[str, int]) -> None:
        """Start the old primary again, as the standby."""
        self.standby.start()
        self._replicate(start)

    def crash(self, chance: random.Random) -> None:
        """Kill the primary. On MySQL, leave the torn beginning of a transaction at the end of its binlog.

        MySQL cuts a torn transaction off when it starts. MariaDB leaves it, and every replica stops there.
        """
        self.primary.kill()
        if self.primary.flavor == "mysql":
            tear(newest_journal(self.primary.data), chance)

    def recover(self) -> None:
        """Start the crashed primary again, and let the standby replicate.

        MariaDB leaves the torn transaction of a crash in its journal. A replica gives up there, and an operator sends
        it to the next journal.
        """
        self.primary.start()
        replica = Replica(self.standby)
        if self._gave_up(replica):
            replica.stop()
            self._replicate(replica.position())  # it may have given up on a connection, not on the journal
        if self._gave_up(replica):
            torn, _ = replica.position()
            replica.stop()
            self._replicate((min(journal for journal in self.primary.journals() if journal > torn), 4))

    def _gave_up(self, replica: Replica) -> bool:
        until(lambda: replica.receives() in ("Yes", "No"), seconds=CAUGHT_UP_S, what="the standby's connection")
        time.sleep(0.5)  # to meet the torn transaction
        return replica.receives() == "No"


def newest_journal(data: Path) -> Path:
    """Return the newest binlog file of a data directory."""
    return max(data.glob("mysql-bin.[0-9]*"))


def tear(journal: Path, chance: random.Random) -> None:
    """Append what a crash leaves of a transaction whose write was not finished: a prefix of the last whole events."""
    written = journal.read_bytes()
    at, starts = 4, []
    while at + _HEADER_BYTES <= len(written):
        starts.append(at)
        size = int.from_bytes(written[at + 9 : at + 13], "little")
        if size < _HEADER_BYTES or at + size > len(written):
            break
        at += size
    tail = written[starts[max(0, len(starts) - 4)] : at]
    if len(tail) > 1:
        with journal.open("ab") as file:
            file.write(tail[: chance.randrange(1, len(tail))])
