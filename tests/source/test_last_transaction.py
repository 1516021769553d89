"""Which server wrote the newest transaction of a binlog, asked of a real MariaDB."""

from __future__ import annotations

from contextlib import closing

import pytest

from canal_ha.source.connection.flavor import examine
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.positions.last_transaction import LastTransaction, last_transaction
from canal_ha.source.positions.scan import Scanner
from lab import MariaDB
from tests.source.reading import config_of

pytestmark = pytest.mark.real

ORIGIN, BEGUN_S = 79, 1_700_000_000


def newest(server: MariaDB, times: int = 1) -> set[LastTransaction]:
    """Ask several times."""
    config = config_of(server)
    with closing(SourceSession(config, config.master)) as session:
        scanner = Scanner(session, examine(session), config, config.master)
        return {last_transaction(scanner) for _ in range(times)}


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
    assert newest(mariadb, 100) == {LastTransaction(ORIGIN, (BEGUN_S + 799) * 1000)}


def test_a_journal_that_the_server_has_begun_itself_hides_no_transaction_of_another(
    mariadb: MariaDB, database: str
) -> None:
    """The first events of a journal and its checkpoints are the server's own; no transaction is behind them yet."""
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION server_id = {ORIGIN}, timestamp = {BEGUN_S}")
        cursor.execute(f"CREATE DATABASE {database}")
    mariadb.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    assert newest(mariadb) == {LastTransaction(ORIGIN, BEGUN_S * 1000)}
