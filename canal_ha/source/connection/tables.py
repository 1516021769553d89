"""Current SHOW CREATE TABLE texts, over a separate connection. Any thread; calls block and run one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pymysql
from pymysql.constants import CR, ER

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.source.connection.session import Interruptible, SourceSession

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
_CONNECTION_LOST = {CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST}
_SESSION = "SET SESSION sql_mode = '', sql_quote_show_create = 1"  # backquotes and complete texts
_WITH_GENERATED_KEYS = "SET SESSION show_gipk_in_create_table_and_information_schema = ON"  # row events have them

_CHARSET = "SELECT default_character_set_name AS charset FROM information_schema.schemata WHERE schema_name = %s"

Key = tuple[str, str]


class Tables:
    """The current definitions of a source's tables.

    config: of the destination.
    source: the configured master unless given.
    opening: called with each connection before it connects.
    Raises SourceUnavailable, SourceRefused.
    """

    def __init__(
        self,
        config: InstanceConfig,
        source: SourceConfig | None = None,
        *,
        opening: Callable[[Interruptible], None] = lambda connection: None,
    ) -> None:
        self._config = config
        self._source = source or config.master
        self._opening = opening
        self._lock = threading.Lock()
        self._session: SourceSession | None = None

    def fetch(self, schema: str, table: str) -> str | None:
        """Return the CREATE TABLE statement; None if there is no such table, or the server does not show it."""
        return self.fetch_all([(schema, table)])[0][1]

    def fetch_all(self, names: Sequence[Key]) -> list[tuple[Key, str | None]]:
        """Return the CREATE TABLE statement of each table, like `fetch`. Ask for many at a time."""
        found: list[tuple[Key, str | None]] = []
        while len(found) < len(names):
            with self._lock:  # between questions, others may fetch
                found += self._some(names[len(found) : len(found) + _AT_A_TIME])
        return found

    def charset(self, schema: str) -> str:
        """Return the charset of tables that name none in a schema; "" if there is no such schema."""
        with self._lock:
            if self._session is not None and not self._session.alive():
                self._forget()
            rows = self._connected().query(_CHARSET, schema)
        return _text(rows[0]["charset"]) if rows else ""

    # ---- holding the lock

    def _some(self, names: Sequence[Key]) -> Iterator[tuple[Key, str | None]]:
        """Yield the first of these definitions, at least one."""
        statements = [f"SHOW CREATE TABLE {_quoted(schema)}.{_quoted(table)}" for schema, table in names]
        answered = 0
        for attempt in (1, 2):
            session = self._connected()
            try:
                for rows in session.ask_all(";".join(statements)):
                    text = rows[0].get("Create Table") if rows else None  # a view answers with "Create View"
                    yield names[answered], None if text is None else _text(text)
                    answered += 1
                return
            except pymysql.MySQLError as error:
                errno = error.args[0] if error.args else 0
                if errno in _NOT_SHOWN:
                    yield names[answered], None
                    return
                self._forget()
                if attempt == 1 and errno in _CONNECTION_LOST and not answered:
                    continue  # the server closes idle connections after wait_timeout
                raise session.where.error(errno, f"{statements[answered]}: {error.args[-1]}") from error

    def close(self) -> None:
        """Close the connection; the next fetch opens another."""
        with self._lock:
            self._forget()

    def _connected(self) -> SourceSession:
        if self._session is None:
            self._session = SourceSession(self._config, self._source, opening=self._opening, many=True)
            self._session.query(_SESSION)
            with suppress(pymysql.MySQLError):
                self._session.ask(_WITH_GENERATED_KEYS)  # MySQL 8.0.30 and later
            # MariaDB prints binary defaults unchanged, so the text is not always UTF-8
            self._session.connection.use_unicode = False
        return self._session

    def _forget(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _text(value: object) -> str:
    return bytes(value).decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
