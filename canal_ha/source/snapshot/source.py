"""The server that a snapshot reads: one connection for the chunks, and what the snapshot asks. Blocks; its thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import pymysql
from pymysql.constants import ER

from canal_ha.config.model import InstanceConfig, WhenXa
from canal_ha.decode.ddl.create_table import quoted
from canal_ha.decode.history.definitions import columns_of, definition_of
from canal_ha.errors import SnapshotRefused, SourceUnavailable, StandbyBehind, TableMissing
from canal_ha.model.excerpt import some
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Source
from canal_ha.model.snapshot import SnapshotRange
from canal_ha.model.table import TableSchema
from canal_ha.source.connection.flavor import Flavor, examine
from canal_ha.source.connection.session import Interruptible, SourceSession
from canal_ha.source.server.standing import check_standing
from canal_ha.source.snapshot.key import TableKey, key_of
from canal_ha.source.snapshot.middle import Middle
from canal_ha.source.snapshot.passing import passes
from canal_ha.source.snapshot.result_set import RawRows, RowMemory, read_rows
from canal_ha.source.snapshot.running import RunningSelect, RunningSelects
from canal_ha.source.snapshot.table import SESSION, SnapshotTable
from canal_ha.source.snapshot.watermark import Pause, Reached, Visibility, beside_xa, visibility, wait_visible

Fetch = Callable[[str, str, str], str | None]

_GIPK = "SET SESSION show_gipk_in_create_table_and_information_schema = ON"  # MySQL 8.0.30 and later
_NEWER_ROWS = "SET SESSION innodb_snapshot_isolation = OFF"  # of MariaDB: let a locking read see them behind a snapshot
_COLLATIONS = (
    "SELECT column_name AS name, character_set_name AS charset, collation_name AS collation"
    " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s AND character_set_name IS NOT NULL"
)
_SIZES = (
    "SELECT COALESCE(table_rows, 0) AS count, COALESCE(data_length, 0) AS size, COALESCE(engine, '') AS engine"
    " FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
)
_TRANSACTIONS = (
    "SELECT e.transactions AS able FROM information_schema.tables t JOIN information_schema.engines e"
    " ON e.engine = t.engine WHERE t.table_schema = %s AND t.table_name = %s"
)

RESUME = "run `canal-ha snapshot resume --without-key`"  # for a snapshot of a client id

_UNKNOWN_S = 1.0  # between questions what a standby has

_TABLE_CHANGED = 1412  # ER_TABLE_DEF_CHANGED: a statement changed the table behind a consistent snapshot
_NO_SUCH_INDEX = 1176
_TOO_LONG = {3024, 1969}  # ER_QUERY_TIMEOUT of MySQL, ER_STATEMENT_TIMEOUT of MariaDB
_AGAIN = {_TABLE_CHANGED, _NO_SUCH_INDEX}
_LOCKED = {ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK}
_GONE = {ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR}
NO_RIGHT = {
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,
    ER.DBACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
}
_NO_SELECT = "SELECT command denied"  # nothing else is missing
_WRONG = {ER.PARSE_ERROR, ER.BAD_FIELD_ERROR, 1305, 1347, 1356}  # also: unknown function, a view, an invalid view


class TableChanged(Exception):
    """The definition of the table is not what the SELECT was made for, or the SELECT has to be repeated."""


class StillLocked(TableChanged):
    """Another transaction has kept a lock that the SELECT needs. Its text is for people."""


class SelectTooLong(Exception):
    """The server has ended the SELECT after its time limit."""


@dataclass(frozen=True, slots=True)
class SnapshotTarget:
    """One table as it is now.

    key: None only if a table without one was asked for.
    definition: what `definition` returns while the table stays as it is.
    count, size_bytes: of its rows, as the server estimates them.
    clustered: whether rows are stored in the order of the primary key.
    """

    table: SnapshotTable
    key: TableKey | None
    definition: str
    count: int
    size_bytes: int
    clustered: bool

    @property
    def name(self) -> str:
        """schema.table, for messages."""
        return f"{self.table.schema.schema}.{self.table.schema.name}"


@dataclass(frozen=True, slots=True)
class Read:
    """The rows of a chunk.

    end: of the binlog after the SELECT.
    seconds: that the SELECT took.
    locked: whether it locked the rows.
    until: the key up to which the SELECT looked for rows; None for the end of the part.
    """

    rows: RawRows
    end: Reached
    seconds: float
    locked: bool
    until: tuple[str, ...] | None = None


class SnapshotSource:
    """A connected server. Raises SourceUnavailable, SourceRefused.

    server, way: of the connection.
    xa: when the stream brings the rows of XA transactions.
    """

    def __init__(
        self,
        config: InstanceConfig,
        fetch: Fetch,
        *,
        opening: Callable[[Interruptible], None] = lambda connection: None,
        select_s: float = 0.0,
        selects: RunningSelects | None = None,
    ) -> None:
        """Connect.

        config: of the destination; its master is the server.
        fetch: returns the CREATE TABLE statement of a table, from a server with this identity; None if there is none.
            Raises SourceUnavailable if another one answers.
        opening: see SourceSession.
        select_s: see SnapshotLimits.
        selects: of the snapshot, to end them on the server; None: nobody will.
        """
        self.selects = selects or RunningSelects()
        self._config = config
        self._fetch = fetch
        self._opening = opening
        self._select_s = select_s
        self.xa = config.xa  # with PREPARE, the stream brings rows before a SELECT can see them
        self._session = SourceSession(config, config.master, opening=opening)
        self.server: Flavor = examine(self._session)
        self._prepare()
        self._checked: LogPosition | None = None
        self._had: Reached | None = None  # the end of the binlog behind `check`
        self._memory = RowMemory()

    def _prepare(self) -> None:
        session = self._session
        session.query(SESSION)
        # MariaDB ignores WITH CONSISTENT SNAPSHOT at a lower level; a locking read of MySQL must not lock gaps
        level = "REPEATABLE READ" if self.server.mariadb else "READ COMMITTED"
        session.query(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        for setting in (_GIPK, _NEWER_ROWS):
            with suppress(pymysql.MySQLError):
                session.ask(setting)
        if self._select_s and self.server.mariadb:
            session.query(f"SET SESSION max_statement_time = {self._select_s:.3f}")
        elif self._select_s:
            session.query(f"SET SESSION max_execution_time = {max(1, int(self._select_s * 1000))}")
        else:
            self._without_limit(session)
        self.way = beside_xa(session, visibility(session, self.server))

    @property
    def name(self) -> Source:
        """The server, for entries."""
        master = self._config.master
        return Source(master.host, master.port, self.server.uuid, self.server.server_id)

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def check(self, brought: Reached, before: LogPosition | None, pause: Pause) -> None:
        """Check that the stream reads this server, and that this has what the stream has read from another one.

        That does not come again.
        brought: what the stream has brought.
        before: how far it had read the other server; None if nothing is missing.
        pause: see wait_visible. If nobody can tell what the server has, this waits as long as a stream waits for it.
        Raises SourceUnavailable until the stream has followed, and while replication may still bring the rest.
        """
        if brought.server not in ("", self.server.identity):
            raise SourceUnavailable(
                f"{self._session.where.address}: the stream reads another server. The snapshot waits until the stream"
                " has followed the switch of the source. If that lasts, the address leads to several servers: configure"
                " one that always leads to the same server"
            )
        if before is None or before is self._checked:
            return
        until = time.monotonic() + self._config.fallback_interval_s
        try:
            while check_standing(self._config, None, [before], self._opening) and time.monotonic() < until:
                pause(_UNKNOWN_S)
        except StandbyBehind as error:
            raise SourceUnavailable(
                f"{self._session.where.address}: it lacks changes that the stream has read from the other server; the"
                " snapshot goes on when it has caught up, or takes writes as the new master"
            ) from error
        self._checked, self._had = before, self.end()

    # ---- tables

    def target(self, schema: str, name: str, *, without_key: bool = False, advice: str = RESUME) -> SnapshotTarget:
        """Return a table as it is now. Raises SnapshotRefused if it is gone, or has no key.

        without_key: return it also if it has no key.
        advice: how to read a table without a key, for the refusal.
        """
        definition = self.definition(schema, name)
        while True:
            target = self._looked_at(schema, name, definition)
            now = self.definition(schema, name)
            if now == definition:
                break
            definition = now  # a statement altered the table between the questions
        if target.key is None and not without_key:
            raise SnapshotRefused(
                f"{schema}.{name} has no primary key, and no unique key of columns that are NOT NULL: add one, leave"
                f" the table out, or {advice} to read it in one go. A key on a part of a column, or on an expression,"
                " does not help"
            )
        return target

    def _looked_at(self, schema: str, name: str, definition: str) -> SnapshotTarget:
        """Return a table with this definition. Its key is wrong if the table has another definition by now."""
        columns = columns_of(definition)
        if not columns:
            raise SnapshotRefused(f"{schema}.{name}: its definition cannot be read: leave the table out")
        table = f"{quoted(schema)}.{quoted(name)}"
        with self.translating(schema, name):
            collations = {
                str(row["name"]): (str(row["charset"]), str(row["collation"]))
                for row in self._session.ask(_COLLATIONS, schema, name)
            }
            key = key_of(columns, collations, self._session.ask(f"SHOW INDEX FROM {table}"))
            sizes = self._session.ask(_SIZES, schema, name)
        made = SnapshotTable(TableSchema(schema, name, columns), self.server, key.names if key else None)
        count, size = (int(sizes[0]["count"]), int(sizes[0]["size"])) if sizes else (0, 0)
        clustered = bool(sizes) and str(sizes[0]["engine"]).lower() == "innodb"
        return SnapshotTarget(made, key, definition, count, size, clustered)

    def estimate(self, schema: str, name: str) -> int:
        """Return how many rows the server believes a table to have."""
        sizes = self._session.query(_SIZES, schema, name)
        return int(sizes[0]["count"]) if sizes else 0

    def transactional(self, target: SnapshotTarget) -> bool:
        """Return whether a consistent snapshot holds for a table."""
        schema = target.table.schema
        rows = self._session.query(_TRANSACTIONS, schema.schema, schema.name)
        return any(row["able"] == "YES" for row in rows)

    def definition(self, schema: str, name: str) -> str:
        """Return a text that changes with the columns of a table. Raises TableMissing."""
        text = self._fetch(schema, name, self.server.identity)
        if text is None:
            raise TableMissing(
                f"{self._session.where.address}: there is no table {schema}.{name}, or {self._session.where.account}"
                f" must not see it (then run: GRANT SELECT ON {quoted(schema)}.{quoted(name)} TO"
                f" {self._session.where.account})"
            )
        return definition_of(text)

    # ---- chunks

    def read(
        self,
        target: SnapshotTarget,
        part: SnapshotRange,
        where: str,
        limit: int,
        most_bytes: int,
        reached: Reached,
        pause: Pause,
        *,
        most_keys: int = 0,
    ) -> Read:
        """Return the next rows of a part of a table in the order of its key, as they are at or behind `reached`.

        target: the table.
        part: what is left of it.
        where: a condition in SQL; "" for all rows.
        limit, most_bytes: of the rows; the last row may exceed the bytes.
        reached: what the stream had brought before this call.
        pause: see wait_visible.
        most_keys: with a condition, rows to look at; 0: all. Rows that come meanwhile are more.
        The next call uses their memory again.
        Raises TableChanged, StillLocked, SelectTooLong, SnapshotRefused, SourceUnavailable.
        """
        locks = self.xa is WhenXa.PREPARE or wait_visible(self._session, self.way_now(), self.to_see(reached), pause)
        began = time.monotonic()
        until = self._ahead(target, part, most_keys) if where and most_keys else None
        if locks and self.server.mariadb:
            self._session.query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")  # the SELECT must not lock gaps
        with self._reading(target, where), self.selects.of(self._config, self._session) as select:
            sql = self._select(target, replace(part, until=until or part.until), where, limit, locks=locks)
            rows = read_rows(self._session, select.comment + sql, most_bytes, self._memory)
        seconds = time.monotonic() - began
        if not rows.complete:  # the server still sends rows
            self._session.close()
            if where:
                select.end()  # else the server notices at the next row
            self._session = self._connected()
            self._prepare()
        end = self.end()
        if self.way is Visibility.CONSISTENT_SNAPSHOT:
            self._session.query("ROLLBACK")
        if self._differs(target):
            raise TableChanged
        return Read(rows, end, seconds, locks, until)

    def way_now(self) -> Visibility:
        """Return the way, which covers what has come by XA COMMIT before this call."""
        self.way = beside_xa(self._session, self.way)
        return self.way

    def to_see(self, brought: Reached) -> Reached:
        """Return the place before which a SELECT has to see everything.

        brought: what the stream has brought. It leaves out some of what the server had at `check`.
        """
        had = self._had
        return had if had and brought.by(had.journal, had.offset) else brought

    def session(self) -> SourceSession:
        """Return another session with the server, without a limit for the time of a SELECT. The caller closes it."""
        session = self._connected()
        session.query(SESSION)
        session.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._without_limit(session)
        with suppress(pymysql.MySQLError):
            session.ask(_GIPK)
        return session

    def _without_limit(self, session: SourceSession) -> None:
        """Let no SELECT of a session end because it takes long, as the server's own setting may want it."""
        limit = "max_statement_time" if self.server.mariadb else "max_execution_time"
        with suppress(pymysql.MySQLError):  # MySQL 5.6 has none
            session.ask(f"SET SESSION {limit} = 0")

    def _connected(self) -> SourceSession:
        """Return one more session with the server. Raises SourceUnavailable, also if another server answers."""
        session = SourceSession(self._config, self._config.master, opening=self._opening)
        found = examine(session)
        if found.identity != self.server.identity:
            session.close()
            raise SourceUnavailable(
                f"{session.where.address}: another server answers, {found.identity} instead of {self.server.identity}"
            )
        return session

    def begin(self, session: SourceSession) -> RunningSelect:
        """Return a SELECT that another session of this server is about to run. Raises SourceUnavailable."""
        return self.selects.begin(self._config, session)

    def end(self, session: SourceSession | None = None) -> Reached:
        """Return the present end of the binlog. session: the one to ask over; the source's own by default."""
        status = (session or self._session).query(self.server.status_statement)[0]
        return Reached(str(status["File"]), int(status["Position"]), self.server.identity)

    def middle(self, target: SnapshotTarget, part: SnapshotRange, least: int) -> tuple[str, ...] | None:
        """Return the key of a row that halves what is left of a part: see Middle. None if that has few rows.

        least: rows of a half.
        Raises TableChanged, SnapshotRefused, SourceUnavailable.
        """
        assert target.key is not None
        try:
            with self._reading(target):
                return Middle(self._session, target.table, target.key).of(part, least)
        except SelectTooLong:
            return None

    def _ahead(self, target: SnapshotTarget, part: SnapshotRange, rows: int) -> tuple[str, ...] | None:
        """Return the key of a row of a part by its number: see Middle. Raises as `read`."""
        assert target.key is not None
        with self._reading(target):
            return Middle(self._session, target.table, target.key).ahead(part, rows)

    def _select(self, target: SnapshotTarget, part: SnapshotRange, where: str, limit: int, *, locks: bool) -> str:
        """Return the SELECT of a chunk. Raises SnapshotRefused for a key of another table."""
        schema, key = target.table.schema, target.key
        assert key is not None
        conditions = [f"({where}\n)"] if where else []  # the condition may end in a comment
        conditions += key.between(part.after, part.until)
        sql = f"SELECT {target.table.select_list} FROM {quoted(schema.schema)}.{quoted(schema.name)}"
        if key.index and not where:
            sql += f" {self._hint(target, key)} INDEX ({quoted(key.index)})"
        if conditions:
            sql += f" WHERE {' AND '.join(conditions)}"
        sql += f" ORDER BY {key.order} LIMIT {limit}"
        if locks:
            newer = not self.server.mariadb and self.server.number >= (8, 0, 1)
            sql += " FOR SHARE" if newer else " LOCK IN SHARE MODE"
        return sql

    def _hint(self, target: SnapshotTarget, key: TableKey) -> str:
        """Return how to name the index of a SELECT in the order of a key.

        With FORCE, MySQL estimates no rows of the range, and then it does not read them ahead: 50 ns a row more. If the
        rows are stored in the order of the primary key, MySQL has no reason to choose a scan and a sort.
        """
        modern = not self.server.mariadb and self.server.number >= (8, 0, 1)
        return "USE" if modern and target.clustered and key.index == "PRIMARY" else "FORCE"

    def _differs(self, target: SnapshotTarget) -> bool:
        """Return whether a table is not what the target says any more. Raises SnapshotRefused if it is gone."""
        schema = target.table.schema
        return self.definition(schema.schema, schema.name) != target.definition

    @contextmanager
    def _reading(self, target: SnapshotTarget, condition: str = "") -> Iterator[None]:
        """Translate the errors of a SELECT that was made for a target, to TableChanged if the table differs from it."""
        try:
            with self.translating(target.table.schema.schema, target.table.schema.name, condition):
                yield
        except SnapshotRefused as error:
            if self._differs(target):
                raise TableChanged from error
            raise

    @contextmanager
    def translating(self, schema: str, name: str, condition: str = "") -> Iterator[None]:
        """Turn the errors of statements about a table into ours, TableChanged, StillLocked, or SelectTooLong.

        condition: that a person has written into the statement; "" for none. The server can refuse it with one of
            hundreds of errors, so every error counts as its own that does not pass by itself.
        """
        where = self._session.where
        try:
            yield
        except pymysql.MySQLError as error:
            errno = error.args[0] if error.args and isinstance(error.args[0], int) else 0
            if errno in _TOO_LONG:
                raise SelectTooLong from error
            if errno in _AGAIN:
                raise TableChanged from error
            text = f"{where.address}: {schema}.{name}: {error.args[-1] if error.args else error} ({errno})"
            if errno in _LOCKED:
                raise StillLocked(
                    f"{where.address}: {schema}.{name}: another transaction keeps a lock that the snapshot waits for,"
                    f" so end it: {error.args[-1]} ({errno})"
                ) from error
            if errno in NO_RIGHT:
                text += f"; run: GRANT SELECT ON {quoted(schema)}.{quoted(name)} TO {where.account}"
                if self.way is Visibility.LOCKING_READ and not str(error.args[-1]).startswith(_NO_SELECT):
                    text += (
                        ". The snapshot locks the rows that it reads; before MySQL 8.0.22 that needs LOCK TABLES, too."
                        " MySQL needs no locks with GTIDs, nor with BACKUP_ADMIN and SELECT on"
                        " performance_schema.log_status as long as no XA transaction has committed since its start"
                    )
            wrong = errno in _WRONG or (condition != "" and not passes(errno))
            if wrong and condition and errno not in NO_RIGHT | _GONE:
                text += f". The condition is {some([condition])}: cancel the snapshot, and start it with another one"
            if errno in _GONE:
                raise TableMissing(text) from error
            if wrong or errno in NO_RIGHT:
                raise SnapshotRefused(text) from error
            raise SourceUnavailable(text) from error
