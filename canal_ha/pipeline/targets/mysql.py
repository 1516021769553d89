"""MySQL or MariaDB: writes a portion with all its tables, and its progress, in one transaction.

Columns are added and changed first, as declared at the source, because these statements commit separately; they can be
repeated after a crash. Rows are replaced by key. The copy compares texts byte by byte, so keys that differ at the
source differ in the copy. A value that the copy cannot hold ends the pipeline; none is cut. No text of the source
becomes SQL: declarations are rebuilt and names are quoted.

The row of `<stateDatabase>.progress` is locked until the transaction ends, so of two processes one waits for the other
and then sees its commit. Who changes columns holds a lock of the server and checks the progress first.
`<stateDatabase>.copies` has one row for each copy: no two tables share one.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.constants import ER

from canal_ha.client.arrow import TableBatch
from canal_ha.config.model import TlsConfig
from canal_ha.errors import SinkRefused, SourceRefused, TargetUnavailable
from canal_ha.pipeline.databases import CopyPlaces, copy_places
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.fencing import lacks
from canal_ha.pipeline.history import versions
from canal_ha.pipeline.latest import latest
from canal_ha.pipeline.mysql_copies import STRICT, MySQLWriter, bound, passes, quoted
from canal_ha.pipeline.passwords import target_password
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.sql_connections import SqlConnections
from canal_ha.source.connection.tls import Connection, secured

SILENT_S = 60  # until a host that does not answer is lost; a statement may take longer, because its host still answers
_NAME_BYTES = 64 * 3  # of a name of a database or table
_SESSION = f"SET SESSION time_zone = '+00:00', foreign_key_checks = 0, sql_mode = '{STRICT}', lock_wait_timeout = 60"
_LOCK_S = 60  # how long to wait for another process that changes columns


def open_target(description: Description) -> MySQLTarget:
    """Return the target of a pipeline; it connects when it is used. Raises OptionInvalid."""
    return MySQLTarget(description, copy_places(description, "database"))


class MySQLTarget:
    """A PipelineTarget; each destination has its own connection."""

    def __init__(self, description: Description, places: CopyPlaces) -> None:
        """Take the options.

        description: the pipeline.
        places: where copies are.
        """
        self._description = description
        self._places = places
        self._options: Mapping[str, Any] = description.target.options
        self._name = f"mysql at {self._options['address']}"
        self._connections = SqlConnections(self._prepared, _close)

    def check(self) -> str:
        """See PipelineTarget."""
        try:
            connection = self._prepared()
        except pymysql.MySQLError as error:
            raise (TargetUnavailable if passes(error) else SinkRefused)(f"{self._name}: {error}") from error
        with connection:
            for place in self._places.named:
                self._check_rights(connection, place)
            version = connection.get_server_info()  # type: ignore[no-untyped-call]  # PyMySQL leaves it untyped
            return f"{version} at {self._options['address']}"

    def _check_rights(self, connection: pymysql.Connection[Any], place: str) -> None:
        """Raise SinkRefused if the account has no right at all on a database, whether it exists or not, or only reads.

        An account that may insert, into any table, passes: which other rights it needs depends on the statements.
        """
        try:
            connection.select_db(place)
            with connection.cursor() as cursor:
                reads = not _may_insert(cursor)
        except pymysql.MySQLError as error:
            if error.args[0] == ER.DBACCESS_DENIED_ERROR:
                raise self._lacks_rights("has no right on", place) from error
            if error.args[0] != ER.BAD_DB_ERROR:  # the pipeline creates it
                raise (TargetUnavailable if passes(error) else SinkRefused)(f"{self._name}: {error}") from error
        else:
            if reads:
                raise self._lacks_rights("may not write into", place)

    def _lacks_rights(self, what: str, place: str) -> SinkRefused:
        return SinkRefused(
            f"{self._name}: the account {self._options['user']} {what} the database {place}, where copies would be:"
            " grant it SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER and DROP"
        )

    def stored(self, destination: str) -> Progress | None:
        """See PipelineTarget."""
        try:
            with self._connect() as connection, connection.cursor() as cursor:
                return self._stored(cursor, destination)
        except pymysql.MySQLError as error:
            if error.args and error.args[0] in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR):
                return None
            raise self._failed(destination, error) from error

    def progress(self, destination: str) -> Progress | None:
        """See PipelineTarget."""
        with self._connected(destination) as connection, connection.cursor() as cursor:
            return self._stored(cursor, destination)

    def commit(self, portion: Portion) -> None:
        """See PipelineTarget."""
        mode = self._description.target.mode
        with self._connected(portion.destination) as connection, connection.cursor() as cursor:
            if not lacks(self._stored(cursor, portion.destination), portion, self._name):
                return
            writer = MySQLWriter(cursor, self._name, self._description, self._places, portion.destination)
            if mode == "mirror":
                changes = latest(self._batches(portion), self._description.keys)
                writer.plan_mirror(changes)
            elif mode == "scd2":
                history = versions(self._batches(portion), self._description.keys)
                writer.plan_history(history)
            else:
                batches = list(self._batches(portion))
                writer.plan_log(batches)
            if writer.changes_columns:
                with self._alone(cursor, portion.destination):
                    if not lacks(self._stored(cursor, portion.destination), portion, self._name):
                        return
                    writer.change_columns()
            connection.begin()
            if not self._claim(cursor, portion):
                connection.rollback()
                return
            if mode == "mirror":
                for each in changes:
                    writer.mirror(each)
            elif mode == "scd2":
                for stretch in history:
                    writer.keep(stretch)
            else:
                for batch in batches:
                    writer.append(batch, portion.progress)
            connection.commit()

    @staticmethod
    def _batches(portion: Portion) -> Iterator[TableBatch]:
        """Yield the batches of tables; a statement about a whole schema has none."""
        return (batch for batch in portion.batches(dates_as_text=True) if batch.table)

    def check_table(self, destination: str, schema: str, table: str, *, merges: bool) -> None:
        """See OwnedTables. A copy has one destination, whatever a route merges."""
        with self._connected(destination) as connection, connection.cursor() as cursor:
            MySQLWriter(cursor, self._name, self._description, self._places, destination).check_copy(schema, table)

    def close(self) -> None:
        """See PipelineTarget."""
        self._connections.close()

    @contextmanager
    def _connected(self, destination: str) -> Iterator[pymysql.Connection[Any]]:
        """Yield the destination's connection. Raises SinkRefused and TargetUnavailable for the server's errors."""
        try:
            with self._connections.of(destination) as connection:
                yield connection
        except pymysql.MySQLError as error:
            raise self._failed(destination, error) from error

    def _failed(self, destination: str, error: pymysql.MySQLError) -> SinkRefused | TargetUnavailable:
        message = f"{self._name}: destination {destination}: {error}"
        return TargetUnavailable(message) if passes(error) else SinkRefused(message)

    def _prepared(self) -> pymysql.Connection[Any]:
        """Return a connection to a server with our tables. Raises as `_connect`."""
        connection = self._connect()
        try:
            self._prepare(connection)
        except BaseException:
            _close(connection)
            raise
        return connection

    def _connect(self) -> pymysql.Connection[Any]:
        """Return a connection. Raises SinkRefused and PyMySQL's errors."""
        options = self._options
        host, _, port = options["address"].rpartition(":")
        authority = options.get("sslCa", "")
        mode = options.get("sslMode") or ("VERIFY_CA" if authority else "PREFERRED")
        tls = TlsConfig(mode, authority, options.get("sslCert", ""), options.get("sslKey", ""))
        try:
            connection = Connection(
                host=host,
                port=int(port),
                user=options["user"],
                password=target_password(self._description).encode(),  # PyMySQL would encode text as Latin-1
                charset="utf8mb4",
                autocommit=True,
                init_command=_SESSION,
                connect_timeout=10,
                **secured(tls),
            )
        except SourceRefused as error:
            raise SinkRefused(f"{self._name}: {error}") from error
        notice_lost_hosts(connection._sock)  # type: ignore[attr-defined]  # PyMySQL offers no other way
        return connection

    def _prepare(self, connection: pymysql.Connection[Any]) -> None:
        """Create what holds the state, unless it is there: the account may have no right to create."""
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            cursor.execute(
                "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = %s"
                " AND table_name IN ('progress', 'copies')",
                (self._places.state,),
            )
            if cursor.fetchone() == (2,):
                return
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quoted(self._places.state)}")
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {quoted(self._places.state)}.progress (pipeline VARBINARY(255),"
                " destination VARBINARY(255), run VARCHAR(64) NOT NULL, seq BIGINT NOT NULL,"
                " progress LONGTEXT NOT NULL,"
                " committed TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,"
                " PRIMARY KEY (pipeline, destination)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
            )
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {quoted(self._places.state)}.copies"
                f" (`database` VARBINARY({_NAME_BYTES}), `table` VARBINARY({_NAME_BYTES}),"
                " pipeline VARBINARY(255) NOT NULL, destination VARBINARY(255) NOT NULL,"
                f" source VARBINARY({2 * _NAME_BYTES + 1}) NOT NULL, PRIMARY KEY (`database`, `table`)) ENGINE=InnoDB"
            )

    @property
    def _progress(self) -> str:
        return f"{bound(self._places.state)}.progress"

    def _stored(self, cursor: Any, destination: str, locking: str = "") -> Progress | None:
        cursor.execute(
            f"SELECT progress FROM {self._progress} WHERE pipeline = %s AND destination = %s {locking}",
            (self._description.name, destination),
        )
        row = cursor.fetchone()
        try:
            return None if row is None else Progress.from_json(row[0])
        except ValueError as error:
            raise SinkRefused(f"{self._name}: {self._places.state}.progress of {destination}: {error}") from error

    def _claim(self, cursor: Any, portion: Portion) -> bool:
        """Lock and store the progress; return False if the target has the portion already. Raises SinkRefused."""
        progress, who = portion.progress, (self._description.name, portion.destination)
        values = (progress.run, progress.seq, progress.to_json())
        first = cursor.execute(
            f"INSERT IGNORE INTO {self._progress} (pipeline, destination, run, seq, progress)"
            " VALUES (%s, %s, %s, %s, %s)",
            (*who, *values),
        )
        if first:
            return lacks(None, portion, self._name)
        if not lacks(self._stored(cursor, portion.destination, "FOR UPDATE"), portion, self._name):
            return False
        cursor.execute(
            f"UPDATE {self._progress} SET run = %s, seq = %s, progress = %s WHERE pipeline = %s AND destination = %s",
            (*values, *who),
        )
        return True

    @contextmanager
    def _alone(self, cursor: Any, destination: str) -> Iterator[None]:
        """Keep other processes of the pipeline from changing columns. Raises TargetUnavailable."""
        text = f"{self._places.state}\0{self._description.name}\0{destination}"
        name = f"canal_ha {hashlib.sha256(text.encode()).hexdigest()[:32]}"
        cursor.execute("SELECT GET_LOCK(%s, %s)", (name, _LOCK_S))
        if cursor.fetchone() != (1,):
            raise TargetUnavailable(
                f"{self._name}: destination {destination}: another process of this pipeline has changed columns for"
                f" {_LOCK_S} s"
            )
        yield
        cursor.execute("SELECT RELEASE_LOCK(%s)", (name,))
        cursor.fetchone()


def _may_insert(cursor: Any) -> bool:
    """Return whether the account may insert rows into the current database, or into a table of it. Inserts none."""
    statements = [f"INSERT INTO canal_ha_{secrets.token_hex(8)} VALUES ()"]  # into a table that does not exist
    cursor.execute("SHOW TABLES")
    names = [quoted(name) for (name,) in cursor.fetchall()]
    for statement in [*statements, *(f"INSERT INTO {name} SELECT * FROM {name} WHERE FALSE" for name in names)]:
        try:
            cursor.execute(statement)
        except pymysql.MySQLError as error:
            if error.args[0] == ER.TABLEACCESS_DENIED_ERROR:
                continue
        return True  # other errors come when rights are checked already
    return False


def _close(connection: pymysql.Connection[Any]) -> None:
    connection._force_close()  # type: ignore[attr-defined]  # close() fails if the server is gone


def notice_lost_hosts(connection: socket.socket) -> None:
    """Make a connection fail if the other host is gone without a word, instead of waiting for hours."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"TCP_KEEPIDLE": SILENT_S // 2, "TCP_KEEPINTVL": SILENT_S // 6, "TCP_KEEPCNT": 3}
    for name, value in {**options, "TCP_USER_TIMEOUT": SILENT_S * 1000}.items():
        if hasattr(socket, name):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
