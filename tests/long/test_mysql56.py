"""MySQL 5.6: no row metadata, the first checksums, the first fractional times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from canal_ha.decode.history.store import Record
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.encoded_gtids import encoded
from canal_ha.source.connection.tables import Tables
from canal_ha.source.history.sql_store import in_mysql
from lab import MySQL56
from lab.mysql import ADMIN
from tests.compat import test_ddl_corpus as corpus
from tests.compat.ddl_corpus import statements
from tests.decode.test_decoder_real import decode, rows
from tests.node import test_mixed_workload as mixed
from tests.positions import test_table_history as history
from tests.source.reading import config_of, newest
from tests.source.test_destination_history_real import scanner_of
from tests.source.test_encoded_gtids import previous

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def mysql56() -> Iterator[MySQL56]:
    """Yield one server for the tests that share it."""
    with MySQL56() as server:
        yield server


def test_mixed_workload(mysql56: MySQL56, database: str) -> None:
    """Though the node is killed five times, all changed rows arrive, and they fold to those of SELECT.

    There is no comparison with mysql-replication, which reads no columns without row metadata.
    """
    received, written = mixed.through_kills(mysql56, database)
    assert len(received.changes) == written
    mixed.check_sums(received, mysql56, database)


def test_statements_of_the_corpus(mysql56: MySQL56, database: str) -> None:
    """After each statement that this version accepts, column names and primary key equal the server's."""
    journal, start, marks = corpus.run(mysql56, database, statements("mysql"))
    wrong = list(corpus.disagreements(mysql56, database, journal, start, marks))
    print(f"{len(marks)} statements taken")
    assert len(marks) > 300
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)


def test_random_alters(mysql56: MySQL56, database: str) -> None:
    """After any accepted sequence of ALTER TABLE statements, the columns equal the server's."""
    corpus.test_random_alters(mysql56, database)


def test_cold_start_with_ddl_ahead() -> None:
    """200 statements run while the node is down: every row comes once, with its own table's columns."""
    history.test_cold_start_with_ddl_ahead(MySQL56, "MINIMAL")


def test_a_binlog_that_nobody_writes_to_is_read_to_its_end(mysql56: MySQL56, database: str) -> None:
    """Scans end although the server waits at the end of the binlog instead of ending the dump."""
    start = newest(mysql56)
    mysql56.execute(f"CREATE DATABASE {database}", "FLUSH BINARY LOGS", f"CREATE TABLE {database}.t (a int)")
    end, scanner, seen = newest(mysql56), scanner_of(mysql56), []
    assert scanner.statements(start, end, lambda at, schema, sql: seen.append(sql)).order == end.order
    assert seen == [f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (a int)"]
    assert scanner.boundary(end.journal, lambda passed: False).order == end.order


def test_what_a_gtid_set_lacks_is_found() -> None:
    """Sets are encoded as this version does it, and its dump begins behind them."""
    with MySQL56(gtid=True) as server:
        server.execute("CREATE DATABASE shop")
        before = server.gtid_set()
        server.execute("FLUSH BINARY LOGS")
        assert previous(server) == encoded(before)
        end = newest(server)
        assert scanner_of(server).lacking(before) is None
        server.execute("CREATE TABLE shop.t (a int)", "CREATE TABLE shop.u (a int)")
        found = scanner_of(server).lacking(before)
        assert found is not None
        assert (found.journal, found.offset, found.gtid) == (end.journal, end.offset, before)


def test_a_table_history_fits_into_a_utf8mb4_database(mysql56: MySQL56, database: str) -> None:
    """An index of this version has 767 bytes of a column at most, but keeps tables at one position apart."""
    mysql56.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    store = in_mysql("example", f"mysql://{mysql56.address}/{database}", ADMIN, ADMIN)
    at = LogPosition("bin.000001", 100)
    records = [Record(at, "s", f"CREATE TABLE {table} (a int)", table) for table in ("x" * 63 + "y", "x" * 64)]
    for _ in range(2):
        store.add("u", [*records, Record(at, "s", "DROP TABLE t")])
    assert store.count() == 3
    store.close()


def test_values() -> None:
    """Every column type of this version arrives as text and as NULL, with row images of all three kinds."""
    columns = {
        "t1 tinyint": ("-128", "-128"),
        "t2 tinyint unsigned": ("255", "255"),
        "s smallint": ("-32768", "-32768"),
        "m mediumint unsigned": ("16777215", "16777215"),
        "i int unsigned zerofill": ("7", "7"),
        "b bigint unsigned": ("18446744073709551615", "18446744073709551615"),
        "d decimal(65,30)": ("-12345678901234567890.5", "-12345678901234567890.500000000000000000000000000"),
        "f float": ("1.5e10", "1.50000005E10"),
        "g double": ("-2.5", "-2.5"),
        "bi bit(64)": ("b'1000000000000000000000000000000000000000000000000000000000000001'", str(2**63 + 1)),
        "y year": ("2155", "2155"),
        "da date": ("'2020-00-00'", "2020-00-00"),
        "ti time(6)": ("'-838:59:58.000001'", "-838:59:58.000001"),
        "ti0 time": ("'100:00:00'", "100:00:00"),
        "dt datetime(3)": ("'9999-12-31 23:59:59.999'", "9999-12-31 23:59:59.999"),
        "dt0 datetime": ("'0000-00-00 00:00:00'", "0000-00-00 00:00:00"),
        "ts timestamp(1) NULL": ("'2001-02-03 04:05:06.7'", "2001-02-03 04:05:06.7"),
        "c char(10)": ("'x '", "x"),
        "v varchar(300)": ("'déjà'", "déjà"),
        "bn binary(4)": ("x'01ff'", "\x01ÿ"),
        "vb varbinary(300)": ("x'00ff'", "\x00ÿ"),
        "tx text": ("'数据'", "数据"),
        "bl blob": ("x'c3a9'", "Ã©"),
        "e enum('a','b')": ("'b'", "2"),
        "st set('a','b','c')": ("'a,c'", "5"),
        "p point": (
            "GeomFromText('POINT(1 2)')",
            "\x00" * 4 + "\x01\x01" + "\x00" * 3 + "\x00" * 6 + "ð?" + "\x00" * 7 + "@",
        ),
    }
    values = ", ".join(value for value, _ in columns.values())
    texts = [text for _, text in columns.values()]
    nothing = ", ".join(["NULL"] * len(columns))
    with MySQL56(extra=["--default-time-zone=+00:00"]) as server:
        server.execute(
            "CREATE DATABASE c CHARACTER SET utf8mb4",
            f"CREATE TABLE c.t (id int PRIMARY KEY, {', '.join(columns)})",
            f"INSERT INTO c.t VALUES (1, {values})",
            f"INSERT INTO c.t VALUES (2, {nothing})",
            "SET SESSION binlog_row_image = 'MINIMAL'",
            "UPDATE c.t SET y = 2000 WHERE id = 1",
            "SET SESSION binlog_row_image = 'NOBLOB'",
            "DELETE FROM c.t WHERE id = 2",
        )
        found = rows(decode(server))
    without_blobs = len(columns) + 1 - len(("tx", "bl"))
    assert found == [
        ("INSERT", [], ["1", *texts]),
        ("INSERT", [], ["2", *[None] * len(columns)]),
        ("UPDATE", ["1"], ["2000"]),
        ("DELETE", ["2", *[None] * (without_blobs - 1)], []),
    ]


def test_a_definition_that_the_server_refuses_to_show_does_not_stop_the_others(mysql56: MySQL56, database: str) -> None:
    """A table that a session with ANSI_QUOTES partitioned cannot be opened in other sessions (error 1486)."""
    with mysql56.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute("SET SESSION sql_mode = 'ANSI_QUOTES'")
        cursor.execute(f'CREATE TABLE {database}.a ("key" int PRIMARY KEY) PARTITION BY HASH ("key") PARTITIONS 2')
        cursor.execute(f"CREATE TABLE {database}.b (id int)")
    mysql56.execute("FLUSH TABLES")
    tables = Tables(config_of(mysql56))
    try:
        (_, one), (_, two) = tables.fetch_all([(database, "a"), (database, "b")])
    finally:
        tables.close()
    assert one is None
    assert two is not None
