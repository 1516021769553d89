"""Which server wrote the newest transaction of a binlog, asked of a real MariaDB."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import pytest

from canal_ha.source.connection.flavor import examine
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.positions.last_transaction import last_transaction
from canal_ha.source.positions.scan import Scanner
from lab import MariaDB
from lab.waiting import until
from tests.source.reading import config_of

pytestmark = pytest.mark.real

ORIGIN, BEGUN_S = 79, 1_700_000_000


def newest(server: MariaDB, times: int = 1) -> set[tuple[int | None, int]]:
    """Return origin and time of what is found, asking several times, each time as if nothing were known."""
    config = config_of(server)
    with closing(SourceSession(config, config.master)) as session:
        scanner = Scanner(session, examine(session), config, config.master)
        found = set()
        for number in range(times):
            fresh = replace(scanner, config=replace(config, destination=f"{config.destination}-{number}-{uuid4()}"))
            last = last_transaction(fresh)
            found.add((last.origin, last.timestamp_ms))
        return found


def test_the_newest_transaction_of_a_large_journal_is_found_each_time(mariadb: MariaDB, database: str) -> None:
    """Bytes come in pieces that end anywhere in a transaction. The last one counts however they fall."""
    with mariadb.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute(f"CREATE TABLE {database}.t (pad varchar(1000))")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute(f"SET SESSION server_id = {ORIGIN}")
        for number in range(800):
            cursor.execute(f"SET SESSION timestamp = {BEGUN_S + number}")
            for _ in range(3):
                cursor.execute(f"INSERT INTO {database}.t VALUES (%s)", ("x" * (900 + number % 97),))
            connection.commit()
    assert newest(mariadb, 100) == {(ORIGIN, (BEGUN_S + 799) * 1000)}


def test_a_journal_that_the_server_has_begun_itself_hides_no_transaction_of_another(
    mariadb: MariaDB, database: str
) -> None:
    """The first events of a journal and its checkpoints are the server's own; no transaction is behind them yet."""
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION server_id = {ORIGIN}, timestamp = {BEGUN_S}")
        cursor.execute(f"CREATE DATABASE {database}")
    mariadb.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    assert newest(mariadb) == {(ORIGIN, BEGUN_S * 1000)}


def test_statements_of_the_server_itself_hide_no_rows_however_many_they_are(mariadb: MariaDB, database: str) -> None:
    """More than a megabyte of them lies behind the last row of another server."""
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute(f"CREATE TABLE {database}.t (id int)")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute(f"SET SESSION server_id = {ORIGIN}, timestamp = {BEGUN_S}")
        cursor.execute(f"INSERT INTO {database}.t VALUES (1)")
        cursor.execute("SET SESSION server_id = DEFAULT, timestamp = DEFAULT")
        for _ in range(200):
            cursor.execute(f"ANALYZE TABLE {database}.t /* {'x' * 10_000} */")
            cursor.fetchall()
    assert newest(mariadb) == {(ORIGIN, BEGUN_S * 1000)}


def test_a_journal_of_the_same_name_after_a_reset_is_read_anew(mariadb: MariaDB, database: str) -> None:
    """What is known of the old journal does not count for the new one, however long that is."""
    config = config_of(mariadb)
    with (
        mariadb.connect() as connection,
        connection.cursor() as cursor,
        closing(SourceSession(config, config.master)) as session,
    ):
        scanner = Scanner(session, examine(session), config, config.master)
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute(f"CREATE TABLE {database}.t (pad varchar(100))")
        cursor.execute("RESET MASTER")
        cursor.execute(f"INSERT INTO {database}.t VALUES ('own')")
        assert last_transaction(scanner).origin == scanner.server.server_id
        known = mariadb.position()
        created_s = int(time.time())
        until(lambda: int(time.time()) > created_s, what="the next second")
        cursor.execute("RESET MASTER")
        cursor.execute(f"SET SESSION server_id = {ORIGIN}, timestamp = {BEGUN_S}")
        while mariadb.position() <= known:
            cursor.execute(f"INSERT INTO {database}.t VALUES ('other')")
        assert last_transaction(scanner).origin == ORIGIN
