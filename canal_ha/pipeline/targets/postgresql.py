"""PostgreSQL: writes a portion with all its tables, and its progress, in one transaction.

Rows are copied into a temporary table and merged from there by key. Statements that change columns are part of the
transaction. The copy's texts are compared byte by byte, so keys that differ at the source differ in the copy. A value
that the copy cannot hold ends the pipeline; none is cut. Zero dates, which no calendar has, become NULL.

The row of `<stateSchema>.progress` is locked until the transaction ends, so of two processes one waits for the other
and then sees its commit. `<stateSchema>.copies` has one row for each copy: no two tables share one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from canal_ha.config.pem_files import check_regular
from canal_ha.errors import SinkRefused, TargetUnavailable
from canal_ha.model.excerpt import one_line
from canal_ha.pipeline.databases import CopyPlaces, copy_places
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.fencing import lacks
from canal_ha.pipeline.history import versions
from canal_ha.pipeline.latest import latest
from canal_ha.pipeline.passwords import target_password
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.postgresql_copies import (
    Cursor,
    PostgreSQLWriter,
    create_schema,
    identifier,
    passes,
    quoted_path,
    text_of,
)
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.sql_connections import SqlConnections

_LASTING = re.compile(  # the server's and libpq's texts, because the library gives no code for them
    r"password authentication failed|no pg_hba\.conf entry|(role|database) .* does not exist|certificate|no password"
)
_SESSION = (
    "SET timezone = 'UTC'; SET datestyle = 'ISO, YMD'; SET intervalstyle = 'postgres'; SET lock_timeout = '60s';"
    " SET search_path = pg_catalog; SET default_transaction_isolation = 'read committed';"
    " SET client_min_messages = warning; SET standard_conforming_strings = on"
)


def open_target(description: Description) -> PostgreSQLTarget:
    """Return the target of a pipeline; it connects when it is used. Raises OptionInvalid."""
    return PostgreSQLTarget(description, copy_places(description, "schema"))


class PostgreSQLTarget:
    """A PipelineTarget; each destination has its own connection."""

    def __init__(self, description: Description, places: CopyPlaces) -> None:
        """Take the options.

        description: the pipeline.
        places: where copies are.
        """
        self._description = description
        self._places = places
        self._options: Mapping[str, Any] = description.target.options
        self._name = f"postgresql at {self._options['address']}"
        self._connections = SqlConnections(self._prepared, psycopg.Connection.close)

    def check(self) -> str:
        """See PipelineTarget."""
        try:
            with self._prepared() as connection:
                version = connection.info.parameter_status("server_version")
                encoding = connection.info.parameter_status("server_encoding")
                wanting = [place for place in self._places.named if not _is_writable(connection, identifier(place))]
        except psycopg.Error as error:
            raise (TargetUnavailable if passes(error) else SinkRefused)(f"{self._name}: {text_of(error)}") from error
        if encoding != "UTF8":
            raise SinkRefused(
                f"{self._name}: the database {self._options['database']} has the encoding {encoding}, which lacks"
                " characters of the source: create one with ENCODING 'UTF8'"
            )
        if wanting:
            raise SinkRefused(
                f"{self._name}: the account {self._options['user']} can write no table of the schema {wanting[0]},"
                " where copies would be: grant it USAGE and CREATE on the schema, or CREATE on the database if the"
                " schema is missing"
            )
        return f"PostgreSQL {version} at {self._options['address']}"

    def stored(self, destination: str) -> Progress | None:
        """See PipelineTarget."""
        try:
            with self._connect() as connection, connection.cursor() as cursor:
                return self._stored(cursor, destination, sql.SQL(""))
        except psycopg.errors.UndefinedTable:
            return None
        except psycopg.Error as error:
            raise self._failed(destination, error) from error

    def progress(self, destination: str) -> Progress | None:
        """See PipelineTarget."""
        with self._connected(destination) as connection, connection.transaction(), connection.cursor() as cursor:
            return self._stored(cursor, destination, sql.SQL(""))

    def commit(self, portion: Portion) -> None:
        """See PipelineTarget."""
        destination, description = portion.destination, self._description
        with self._connected(destination) as connection, connection.transaction(), connection.cursor() as cursor:
            if not self._claim(cursor, portion):
                return
            writer = PostgreSQLWriter(cursor, self._name, description, self._places, destination)
            batches = (batch for batch in portion.batches() if batch.table)  # not a statement about a whole schema
            if description.target.mode == "mirror":
                for changes in latest(batches, description.keys):
                    writer.mirror(changes)
            elif description.target.mode == "scd2":
                for stretch in versions(batches, description.keys):
                    writer.keep(stretch)
            else:
                for batch in batches:
                    writer.append(batch, portion.progress)

    def check_table(self, destination: str, schema: str, table: str, *, merges: bool) -> None:
        """See OwnedTables. A copy has one destination, whatever a route merges."""
        with (
            self._connected(destination) as connection,
            connection.transaction(force_rollback=True),
            connection.cursor() as cursor,
        ):
            PostgreSQLWriter(cursor, self._name, self._description, self._places, destination).check_copy(schema, table)

    def close(self) -> None:
        """See PipelineTarget."""
        self._connections.close()

    @contextmanager
    def _connected(self, destination: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Yield the destination's connection. Raises SinkRefused and TargetUnavailable for the server's errors."""
        try:
            with self._connections.of(destination) as connection:
                yield connection
        except psycopg.Error as error:
            raise self._failed(destination, error) from error

    def _failed(self, destination: str, error: psycopg.Error) -> SinkRefused | TargetUnavailable:
        message = f"{self._name}: destination {destination}: {text_of(error)}"
        return TargetUnavailable(message) if passes(error) else SinkRefused(message)

    def _prepared(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a connection in a database with our tables. Raises as `_connect`."""
        connection = self._connect()
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a connection. Raises SinkRefused, TargetUnavailable and psycopg's errors."""
        options = self._options
        addresses = [address.rpartition(":") for address in options["address"].split(",")]
        authority = options.get("sslCa")
        files = {"sslrootcert": authority, "sslcert": options.get("sslCert"), "sslkey": options.get("sslKey")}
        try:
            check_regular(*filter(None, files.values()))
        except OSError as error:
            raise SinkRefused(f"{self._name}: {error.filename}: {error.strerror}") from error
        try:
            connection = psycopg.connect(
                host=",".join(host for host, _, _ in addresses),
                port=",".join(port for _, _, port in addresses),
                target_session_attrs="read-write",
                dbname=options["database"],
                user=options["user"],
                password=target_password(self._description) or None,
                sslmode=options.get("sslMode") or ("verify-ca" if authority else "prefer"),
                connect_timeout=10,
                tcp_user_timeout=60_000,
                keepalives_idle=30,
                application_name=f"canal-ha {self._description.name}",
                client_encoding="utf8",
                autocommit=True,
                **{name: file for name, file in files.items() if file},
            )
        except psycopg.OperationalError as error:
            kind = SinkRefused if _LASTING.search(str(error)) else TargetUnavailable
            raise kind(f"{self._name}: {one_line(error)}") from error
        try:
            connection.execute(_SESSION)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Create what holds the state, unless it is there: the account may have no right to create."""
        state = self._places.state
        with connection.transaction(), connection.cursor() as cursor:
            paths = quoted_path(state, "progress"), quoted_path(state, "copies")
            cursor.execute("SELECT to_regclass(%s), to_regclass(%s)", paths)
            if None not in (cursor.fetchone() or ()):
                return
            create_schema(cursor, state)
            cursor.execute(
                sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {} (pipeline text, destination text, run text NOT NULL,"
                    " seq bigint NOT NULL, progress text NOT NULL, committed timestamptz NOT NULL DEFAULT now(),"
                    " PRIMARY KEY (pipeline, destination))"
                ).format(sql.Identifier(state, "progress"))
            )
            cursor.execute(
                sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {} (schema text, name text, pipeline text NOT NULL,"
                    " destination text NOT NULL, source text NOT NULL, PRIMARY KEY (schema, name))"
                ).format(sql.Identifier(state, "copies"))
            )

    def _stored(self, cursor: Cursor, destination: str, locking: sql.SQL) -> Progress | None:
        table = sql.Identifier(self._places.state, "progress")
        cursor.execute(
            sql.SQL("SELECT progress FROM {} WHERE pipeline = %s AND destination = %s {}").format(table, locking),
            (self._description.name, destination),
        )
        row = cursor.fetchone()
        try:
            return None if row is None else Progress.from_json(row[0])
        except ValueError as error:
            raise SinkRefused(f"{self._name}: {self._places.state}.progress of {destination}: {error}") from error

    def _claim(self, cursor: Cursor, portion: Portion) -> bool:
        """Lock and store the progress; return False if the target has the portion already. Raises SinkRefused."""
        table, progress = sql.Identifier(self._places.state, "progress"), portion.progress
        who = (self._description.name, portion.destination)
        values = (progress.run, progress.seq, progress.to_json())
        cursor.execute(
            sql.SQL(
                "INSERT INTO {} (pipeline, destination, run, seq, progress) VALUES (%s, %s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING"
            ).format(table),
            (*who, *values),
        )
        if cursor.rowcount:
            return lacks(None, portion, self._name)
        if not lacks(self._stored(cursor, portion.destination, sql.SQL("FOR UPDATE")), portion, self._name):
            return False
        cursor.execute(
            sql.SQL(
                "UPDATE {} SET run = %s, seq = %s, progress = %s, committed = now()"
                " WHERE pipeline = %s AND destination = %s"
            ).format(table),
            (*values, *who),
        )
        return True


def _is_writable(connection: psycopg.Connection[tuple[Any, ...]], schema: str) -> bool:
    """Return whether the account may create a table in a schema, or add rows to one that is there."""
    found = connection.execute(
        "SELECT has_schema_privilege(oid, 'USAGE') AND (has_schema_privilege(oid, 'CREATE') OR EXISTS (SELECT FROM"
        " pg_class WHERE relnamespace = pg_namespace.oid AND relkind IN ('r', 'p')"
        " AND has_table_privilege(pg_class.oid, 'INSERT')))"
        " FROM pg_namespace WHERE nspname = %(schema)s UNION ALL SELECT has_database_privilege(current_database(),"
        " 'CREATE') WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = %(schema)s)",
        {"schema": schema},
    ).fetchone()
    return found == (True,)
