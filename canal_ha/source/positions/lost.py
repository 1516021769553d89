"""Explains why a server refused a dump with error 1236, which it uses for nearly everything."""

from __future__ import annotations

from collections.abc import Sequence

from canal_ha.config.model import InstanceConfig
from canal_ha.errors import CanalError, PositionLost, SourceUnavailable, Superseded
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import BinaryLog, binary_logs, may_contain
from canal_ha.source.connection.session import SourceSession, Where

DUMP_FAILED = 1236

_REPLACED = "same server_uuid/server_id"  # MySQL with error 1236, MariaDB 10.11 with 4052
# What servers write when they lack transactions that a GTID set needs, or that it names. They do not translate it.
# Source: MySQL share/messages_to_clients.txt; MariaDB sql/sql_repl.cc
_TRANSACTIONS_GONE = (
    "purged",
    "has more GTIDs than",
    "Could not find GTID state requested",
    "is not in the master's binlog",
    "is missing the GTID",
)


def superseded(address: str, text: str) -> Superseded | None:
    """Return the error if the server ended a dump in favour of another one; None if that was not the reason."""
    if _REPLACED not in text:
        return None
    return Superseded(f"{address}: another dump has begun with this one's identity ({text})")


def ended(session: SourceSession, config: InstanceConfig, at: LogPosition, text: str) -> CanalError:
    """Return the error for a dump from `at` that ended with 1236.

    session: for questions to the server.
    config: of the destination.
    at: where the dump stood.
    text: the server's message.
    The list of journals decides whether the position is lost. The message does not, because the server sends 1236 for
    a full disk, a file that it cannot open or a lack of memory too, and these pass.
    Raises SourceUnavailable, SourceRefused if the server does not answer questions either.
    """
    where = session.where.address
    logs = binary_logs(session)
    cure = (
        f"{config.destination} cannot continue: restore the journal, or set the cursor (or"
        f" canal.instance.master.journal.name and position) to a position that exists"
    )
    log = _named(logs, at.journal)
    if log is None:
        return PositionLost(
            f"{where}: journal {at.journal} (wanted: {at}) is purged; the oldest journal is {logs[0].name}; {cure}"
        )
    if not log.may_contain(at.offset):
        return PositionLost(
            f"{where}: {at} lies beyond the end of its journal ({log.size_bytes} bytes): binary logs were reset or"
            f" lost; the oldest journal is {logs[0].name}; {cure}"
        )
    return SourceUnavailable(
        f"{where}: the server cannot send its binlog from {at}: {text}; reading is tried again. If this stays, look at"
        f" the server's error log and disk; if {config.destination} was set to this position by hand, set the cursor to"
        " one where an event begins"
    )


def gtids_refused(where: Where, config: InstanceConfig, gtid: str, text: str) -> CanalError:
    """Return the error for a dump by GTID set that ended with 1236. It is lost only if the server lacks transactions.

    where: the server.
    config: of the destination.
    gtid: the set from which to read.
    text: the server's message.
    """
    if any(part in text for part in _TRANSACTIONS_GONE):
        return PositionLost(
            f"{where.address}: transactions after the GTID set {gtid} are purged or unknown to the server ({text});"
            f" set canal.instance.master.gtid of {config.destination} to a set that the server can continue"
        )
    return SourceUnavailable(
        f"{where.address}: the server cannot send its binlog from the GTID set {gtid}: {text}; reading is tried again."
        " If this stays, look at the server's error log and disk"
    )


def existing(session: SourceSession, at: LogPosition) -> LogPosition:
    """Return `at` if the binlog contains it. Raises PositionLost, SourceUnavailable, SourceRefused."""
    logs = binary_logs(session)
    if not may_contain(logs, at):
        reach = f"{logs[0].name}:4 to {logs[-1].name}:{logs[-1].size_bytes}"
        raise PositionLost(f"{session.where.address}: {at} does not exist; the binlog reaches from {reach}")
    return at


def reach(logs: Sequence[BinaryLog], at: LogPosition) -> str:
    """Describe whether these journals still have a position, and how far it is from their end."""
    names = [log.name for log in logs]
    if at.journal not in names:
        return f"its journal is gone: the oldest one is {names[0]}"
    index = names.index(at.journal)
    if logs[index].size_bytes == 0:
        return "its journal exists, but the server cannot open its file (SHOW BINARY LOGS shows 0 bytes)"
    if at.offset > logs[index].size_bytes:
        return f"its journal ends earlier, at {logs[index].size_bytes}: binary logs were reset"
    behind = sum(log.size_bytes for log in logs[index:]) - at.offset
    return f"its journal exists, with {index} older ones; {behind} bytes behind the newest position"


def _named(logs: Sequence[BinaryLog], journal: str) -> BinaryLog | None:
    return next((log for log in logs if log.name == journal), None)
