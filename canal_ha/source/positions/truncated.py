"""Journals whose last event a server crash cut off. MySQL removes the rest, MariaDB leaves it. Blocks."""

from __future__ import annotations

from dataclasses import replace

from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import Flavor, binary_logs
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.positions.resume import FIRST_OFFSET

_TRUNCATED = "truncated in the middle of event"
_EXECUTED = "SELECT BINLOG_GTID_POS(%s, %s) AS here, BINLOG_GTID_POS(%s, %s) AS there"


def is_truncated(text: str) -> bool:
    """Return whether a dump ended with this text because its journal ends inside an event."""
    return _TRUNCATED in text


def next_journal(session: SourceSession, journal: str) -> str:
    """Return the journal that follows this one; "" if there is none."""
    names = [log.name for log in binary_logs(session)]
    return names[names.index(journal) + 1] if journal in names[:-1] else ""


def behind(session: SourceSession, server: Flavor, at: LogPosition, text: str) -> LogPosition | None:
    """Return where to continue when a dump ended with this text at the boundary `at`: the next journal.

    session: for questions to the server.
    server: its flavor.
    at: where the dump ended.
    text: the server's message.
    Return None if the journal is not truncated, or if transactions may lie behind the cut: the GTID set executed before
    the two positions must be equal. Raises SourceUnavailable, SourceRefused.
    """
    if not server.mariadb or not is_truncated(text):
        return None
    onwards = next_journal(session, at.journal)
    if not onwards:
        return None
    row = session.query(_EXECUTED, at.journal, at.offset, onwards, FIRST_OFFSET)[0]
    if row["here"] is None or row["here"] != row["there"]:
        return None
    return replace(at, journal=onwards, offset=FIRST_OFFSET, consumed=False, sub_index=0, mark="")
