"""Explains why a server refused a dump with error 1236, which it uses for nearly everything."""

from __future__ import annotations

from collections.abc import Sequence

from canal_ha.config.model import InstanceConfig
from canal_ha.errors import CanalError, PositionLost, SourceUnavailable, Superseded
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import BinaryLog, binary_logs
from canal_ha.source.connection.session import SourceSession

DUMP_FAILED = 1236

_REPLACED = "same server_uuid/server_id"  # MySQL with error 1236, MariaDB 10.11 with 4052


def superseded(address: str, text: str) -> Superseded | None:
    """Return the error if the server ended a dump in favour of another one; None if that was not the reason."""
    if _REPLACED not in text:
        return None
    return Superseded(f"{address}: another dump has begun with this one's identity ({text})")


def ended(session: SourceSession, config: InstanceConfig, at: LogPosition, text: str, *, moved: bool) -> CanalError:
    """Return the error for a dump from `at` that ended with 1236.

    session: for questions to the server.
    config: of the destination.
    at: where the dump stood.
    text: the server's message.
    moved: the connection reached `at` from an earlier boundary, so another attempt from there may succeed.
    Raises SourceUnavailable, SourceRefused if the server does not answer questions either.
    """
    where = session.where.address
    logs = binary_logs(session)
    cure = (
        f"{config.destination} cannot continue: restore the journal, or set the cursor (or"
        f" canal.instance.master.journal.name and position) to a position that exists"
    )
    size = next((log.size_bytes for log in logs if log.name == at.journal), None)
    if size is None:
        return PositionLost(
            f"{where}: journal {at.journal} (wanted: {at}) is purged; the oldest journal is {logs[0].name}; {cure}"
        )
    if at.offset > size:
        return PositionLost(
            f"{where}: {at} lies beyond the end of its journal ({size} bytes): binary logs were reset or lost;"
            f" the oldest journal is {logs[0].name}; {cure}"
        )
    if not moved:
        return PositionLost(f"{where}: cannot read from {at}: {text}; the oldest journal is {logs[0].name}; {cure}")
    return SourceUnavailable(f"{where}: the dump ended at {at}: {text}")


def existing(session: SourceSession, at: LogPosition) -> LogPosition:
    """Return `at` if the binlog contains it. Raises PositionLost, SourceUnavailable, SourceRefused."""
    logs = binary_logs(session)
    size = next((log.size_bytes for log in logs if log.name == at.journal), None)
    if size is None or at.offset > size:
        reach = f"{logs[0].name}:4 to {logs[-1].name}:{logs[-1].size_bytes}"
        raise PositionLost(f"{session.where.address}: {at} does not exist; the binlog reaches from {reach}")
    return at


def reach(logs: Sequence[BinaryLog], at: LogPosition) -> str:
    """Describe whether these journals still have a position, and how far it is from their end."""
    names = [log.name for log in logs]
    if at.journal not in names:
        return f"its journal is gone: the oldest one is {names[0]}"
    index = names.index(at.journal)
    if at.offset > logs[index].size_bytes:
        return f"its journal ends earlier, at {logs[index].size_bytes}: binary logs were reset"
    behind = sum(log.size_bytes for log in logs[index:]) - at.offset
    return f"its journal exists, with {index} older ones; {behind} bytes behind the newest position"
