"""Current SHOW CREATE TABLE texts, over sessions of their own kind. Any thread; calls block and run one at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pymysql
from pymysql.constants import ER

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.errors import SourceUnavailable
from canal_ha.source.connection.idle_sessions import SessionKind, SourceSessions
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.connection.stop_signal import StopSignal

_AT_A_TIME = 100  # tables in one question
_UNREADABLE_PARTITIONS = 1486  # MySQL 5.6 with a table that a session with ANSI_QUOTES partitioned
_NOT_SHOWN = {
    ER.NO_SUCH_TABLE,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.BAD_DB_ERROR,
    ER.DBACCESS_DENIED_ERROR,
    ER.WRONG_OBJECT,
    _UNREADABLE_PARTITIONS,
}
_SESSION = "SET SESSION sql_mode = '', sql_quote_show_create = 1"  # backquotes and complete texts
_WITH_GENERATED_KEYS = "SET SESSION show_gipk_in_create_table_and_information_schema = ON"  # row events have them

_CHARSET = "SELECT default_character_set_name AS charset FROM information_schema.schemata WHERE schema_name = %s"

Key = tuple[str, str]


class Tables:
    """The current definitions of a source's tables.

    config: of the destination.
    source: the configured master unless given.
    stop_signal: see SourceSessions.

    `server` in a call: the identity of the server that has to answer; "" for any.
    Raises SourceUnavailable, SourceRefused.
    """

    def __init__(
        self,
        config: InstanceConfig,
        source: SourceConfig | None = None,
        *,
        stop_signal: StopSignal | None = None,
        older_s: float = 0.0,
    ) -> None:
        self._sessions = SourceSessions(config, source, stop_signal, _KIND, older_s=older_s)
        self._lock = threading.Lock()

    def fetch(self, schema: str, table: str, server: str = "") -> str | None:
        """Return the CREATE TABLE statement; None if there is no such table, or the server does not show it."""
        return self.fetch_all([(schema, table)], server)[0][1]

    def fetch_all(self, names: Sequence[Key], server: str = "") -> list[tuple[Key, str | None]]:
        """Return the CREATE TABLE statement of each table, like `fetch`. Ask for many at a time."""
        found: list[tuple[Key, str | None]] = []
        while len(found) < len(names):
            with self._session(server) as session:  # between questions, others may fetch
                found += _some(session, names[len(found) : len(found) + _AT_A_TIME])
        return found

    def charset(self, schema: str, server: str = "") -> str:
        """Return the charset of tables that name none in a schema; "" if there is no such schema."""
        with self._session(server) as session:
            rows = session.query(_CHARSET, schema)
        return _text(rows[0]["charset"]) if rows else ""

    def close(self) -> None:
        """Use no session any more; the next fetch opens a new one."""
        self._sessions.close()

    @contextmanager
    def _session(self, server: str) -> Iterator[SourceSession]:
        with self._lock, self._sessions.lent_with_server() as used:
            if server and used.server.identity != server:
                raise SourceUnavailable(
                    f"{used.session.where.address}: another server answers ({used.server.identity}) than the one whose"
                    f" binlog is read ({server}); reading begins again"
                )
            yield used.session


def _some(session: SourceSession, names: Sequence[Key]) -> Iterator[tuple[Key, str | None]]:
    """Yield the first of these definitions, at least one."""
    statements = [f"SHOW CREATE TABLE {_quoted(schema)}.{_quoted(table)}" for schema, table in names]
    answered = 0
    try:
        for rows in session.ask_all(";".join(statements)):
            text = rows[0].get("Create Table") if rows else None  # a view answers with "Create View"
            yield names[answered], None if text is None else _text(text)
            answered += 1
    except pymysql.MySQLError as error:
        errno = error.args[0] if error.args else 0
        if errno not in _NOT_SHOWN:
            raise session.where.error(errno, f"{statements[answered]}: {error.args[-1]}") from error
        yield names[answered], None


def _prepare(session: SourceSession) -> None:
    session.query(_SESSION)
    with suppress(pymysql.MySQLError):
        session.ask(_WITH_GENERATED_KEYS)  # MySQL 8.0.30 and later
    # MariaDB prints binary defaults unchanged, so the text is not always UTF-8
    session.connection.use_unicode = False


_KIND = SessionKind(many=True, prepare=_prepare)


def _text(value: object) -> str:
    return bytes(value).decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
