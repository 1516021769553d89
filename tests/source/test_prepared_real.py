"""XA transactions on real servers: rows come at XA COMMIT, from wherever a dump begins, never after XA ROLLBACK."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from canal_ha.config.model import DecodeOptions
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.decode.prepared import KeptParts
from canal_ha.errors import PreparedLost
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Source
from canal_ha.source.positions import prepared
from canal_ha.source.positions.locate import BinlogEnd
from canal_ha.source.positions.prepared import PreparedReader, server_journals
from lab import MariaDB, MySQL, SqlServer
from tests.source.reading import ColumnsOfMetadata, Reading, config_of, newest

pytestmark = pytest.mark.real

MANY = 1 << 20


class XaReading(Reading):
    """A dump that delivers XA transactions when they commit. most_bytes: to keep of prepared ones."""

    def __init__(self, server: SqlServer, schema: str, start: LogPosition, most_bytes: int = MANY) -> None:
        super().__init__(server, schema, start)
        self._schema = schema
        self._server_config = config_of(server)
        self._most_bytes = most_bytes

    def _decoder(
        self, source: Source, start: LogPosition, *, searching: bool = False, end: BinlogEnd | None = None
    ) -> Decoder:
        config = self._server_config
        reader = PreparedReader("here", partial(server_journals, config, config.master, self.dump.opened))
        return Decoder(
            source=source,
            journal=start.journal,
            position=start.offset,
            options=DecodeOptions(transaction_size=64),
            tables=TableFilter(rf"{self._schema}\..*", ""),
            fields=FieldFilter("", ""),
            history=ColumnsOfMetadata(),
            prepared=KeptParts(self._most_bytes, reader.read_again, start),
        )


@contextmanager
def running(server: SqlServer, database: str, *statements: str) -> Iterator[None]:
    """Run statements in one session and keep the session until the end: MariaDB keeps its XA transactions with it."""
    with server.connect(database=database, autocommit=True) as session:
        for statement in statements:
            session.cursor().execute(statement)
        yield


def run(server: SqlServer, database: str, *statements: str) -> None:
    with running(server, database, *statements):
        pass


def prepare(server: SqlServer, database: str, name: str, *ids: int) -> None:
    """Prepare rows, and leave: only XA COMMIT or XA ROLLBACK from another session ends the transaction."""
    inserts = [f"INSERT INTO t VALUES ({number}, 0)" for number in ids]
    run(server, database, f"XA START '{name}'", *inserts, f"XA END '{name}'", f"XA PREPARE '{name}'")


def make_table(server: SqlServer, database: str) -> None:
    server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT)")


def test_rows_come_when_the_transaction_commits(source_server: SqlServer, database: str) -> None:
    """In the order of the commits; a rolled-back transaction and its rows never come; one phase comes at once."""
    make_table(source_server, database)
    execute = partial(run, source_server, database)
    with XaReading(source_server, database, newest(source_server)) as reading:
        prepare(source_server, database, "a", 1, 2)
        prepare(source_server, database, "b", 3)
        prepare(source_server, database, "c", 4)
        execute("INSERT INTO t VALUES (5, 0)", "XA ROLLBACK 'b'", "XA COMMIT 'c'")
        execute("XA START 'a d'", "INSERT INTO t VALUES (6, 0)", "XA END 'a d'", "XA COMMIT 'a d' ONE PHASE")
        execute("XA COMMIT 'a'", "INSERT INTO t VALUES (7, 0)")
        assert reading.wait_rows(6) == ["5", "4", "6", "1", "2", "7"]
    assert {str(row["id"]) for row in source_server.query(f"SELECT id FROM {database}.t")} == set(reading.rows())


@pytest.mark.parametrize("journals_between", [0, 2])
def test_a_dump_that_begins_behind_the_prepare(source_server: SqlServer, database: str, journals_between: int) -> None:
    """It finds the rows in the binlog before its start, in an older journal too, and not those of a rolled-back one."""
    make_table(source_server, database)
    prepare(source_server, database, "a", 8)
    run(source_server, database, "XA ROLLBACK 'a'")
    prepare(source_server, database, "a", 1, 2)
    prepare(source_server, database, "b", 9)
    for _ in range(journals_between):
        source_server.execute("FLUSH BINARY LOGS")
    with XaReading(source_server, database, newest(source_server)) as reading:
        run(source_server, database, "INSERT INTO t VALUES (3, 0)", "XA ROLLBACK 'b'", "XA COMMIT 'a'")
        prepare(source_server, database, "a", 4)
        run(source_server, database, "XA COMMIT 'a'")
        assert reading.wait_rows(4) == ["3", "1", "2", "4"]


def test_a_part_beyond_the_budget_is_read_again(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes in pieces from the binlog, complete and in order, and reading goes on behind it."""
    monkeypatch.setattr(prepared, "PIECE_BYTES", 3000)
    make_table(source_server, database)
    with XaReading(source_server, database, newest(source_server), most_bytes=1000) as reading:
        prepare(source_server, database, "a", *range(300))
        run(
            source_server, database, "INSERT INTO t VALUES (1000, 0)", "XA COMMIT 'a'", "INSERT INTO t VALUES (1001, 0)"
        )
        assert reading.wait_rows(302) == ["1000", *map(str, range(300)), "1001"]


def test_the_connection_breaks_between_prepare_and_commit(source_server: SqlServer, database: str) -> None:
    """What the first connection kept is read again by the next one; no row is lost, and none comes twice."""
    make_table(source_server, database)
    with XaReading(source_server, database, newest(source_server)) as reading:
        prepare(source_server, database, "a", 1, 2)
        run(source_server, database, "INSERT INTO t VALUES (3, 0)")
        reading.wait_rows(1)
        for row in source_server.query("SHOW PROCESSLIST"):
            if "Binlog Dump" in str(row["Command"]):
                source_server.execute(f"KILL {row['Id']}")
        run(source_server, database, "XA COMMIT 'a'", "INSERT INTO t VALUES (4, 0)")
        assert reading.wait_rows(4) == ["3", "1", "2", "4"]


def test_a_purged_part_stops_the_dump_with_what_to_do() -> None:
    """No row is passed over in silence: the error names the transaction, the commit, and where to go on."""
    with MySQL() as server:
        make_table(server, "c")
        prepare(server, "c", "a", 1)
        server.execute("FLUSH BINARY LOGS")
        start = newest(server)
        server.execute(f"PURGE BINARY LOGS TO '{start.journal}'")
        with XaReading(server, "c", start) as reading:
            run(server, "c", "INSERT INTO t VALUES (2, 0)", "XA COMMIT 'a'", "INSERT INTO t VALUES (3, 0)")
            failed = reading.failure(PreparedLost)
        journal, offset = server.position()
    assert failed.retry_in_s is None
    assert reading.rows() == ["2"]
    text = str(failed.error)
    assert "X'61',X'',1 commits at" in text
    assert f"set the cursor to {journal}:" in text
    assert int(text.rpartition(f"{journal}:")[2].split()[0]) < offset


@pytest.mark.parametrize("most_bytes", [MANY, 0])
def test_compressed_parts(most_bytes: int) -> None:
    """MySQL compresses what it writes at XA PREPARE, one phase included; MariaDB compresses events."""
    mysql: Any = partial(MySQL, extra=["--binlog-transaction-compression=ON"])
    mariadb: Any = partial(MariaDB, extra=["--log-bin-compress=ON", "--log-bin-compress-min-len=10"])
    for make in (mysql, mariadb):
        with make() as server:
            make_table(server, "c")
            with XaReading(server, "c", newest(server), most_bytes) as reading:
                prepare(server, "c", "a", 1, 2)
                run(server, "c", "XA START 'b'", "INSERT INTO t VALUES (3, 0)", "XA END 'b'", "XA COMMIT 'b' ONE PHASE")
                run(server, "c", "XA COMMIT 'a'", "INSERT INTO t VALUES (4, 0)")
                assert reading.wait_rows(4) == ["3", "1", "2", "4"]
