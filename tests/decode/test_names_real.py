"""Rows get the names that real servers give them, although the events carry none (binlog_row_metadata=MINIMAL)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

import pymysql
import pytest

from canal_ha.client.rows import rows_of
from canal_ha.config.model import DecodeOptions
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.decode.history.history import Fetch, History
from canal_ha.model.segment import Segment, Source
from lab.mysql import MariaDB, MySQL, SqlServer

pytestmark = pytest.mark.real

# Statements by table. A row is inserted behind each one that succeeds and leaves the table there; `!` says that a
# statement fails, `=` that it belongs to the session.
EITHER = {
    "ordinary": [
        "CREATE TABLE ordinary (id int, row_start int, row_end int, price int)",
        "ALTER TABLE ordinary ADD seat int",
        "ALTER TABLE ordinary DROP row_start, MODIFY row_end int FIRST",
    ],
    "own_key": [
        "CREATE TABLE own_key (my_row_id bigint unsigned PRIMARY KEY, b bigint unsigned)",
        "ALTER TABLE own_key ADD x bigint unsigned FIRST",
    ],
    "comments": [
        "CREATE TABLE comments (a int, /*M! x int, */ b int, /*!50100 y int, */ c int, /*!990000 z int, */ d int)",
        "ALTER TABLE comments ADD e int /*M!50100 FIRST */",
    ],
    "backslashes": [
        "=SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
        r"CREATE TABLE backslashes (a int COMMENT 'C:\', b int, c int COMMENT 'x\', d int COMMENT 'y')",
        r"ALTER TABLE backslashes ADD e int COMMENT '\' FIRST, ADD f int COMMENT ', ADD g int FIRST'",
        "=SET sql_mode = DEFAULT",
    ],
    "quotes": [
        "=SET sql_mode = 'ANSI_QUOTES'",
        r"""CREATE TABLE quotes ("a\" int, "b""c" int, `d` int COMMENT 'it\'s')""",
        '''ALTER TABLE "quotes" ADD "it's" int AFTER "a\\"''',
        "=SET sql_mode = DEFAULT",
    ],
    "digits": ["CREATE TABLE digits (a int, 0XAB int, 0x1_ int, 7e int)", "ALTER TABLE digits ADD 0xg int AFTER 7e"],
}
MYSQL_ONLY = {
    "row_ids": [
        "=SET sql_generate_invisible_primary_key = ON",
        "CREATE TABLE row_ids (a bigint unsigned)",
        "ALTER TABLE row_ids ADD b bigint unsigned FIRST",
        "ALTER TABLE row_ids ALTER COLUMN my_row_id SET VISIBLE",
        "ALTER TABLE row_ids ADD c bigint unsigned FIRST",
        "=SET sql_generate_invisible_primary_key = OFF",
    ],
}
MARIADB_ONLY = {
    "settings": [
        "SET STATEMENT lock_wait_timeout=5 FOR CREATE TABLE settings (a int, b int, c int)",
        "SET STATEMENT lock_wait_timeout=5, max_statement_time=(1+9) FOR ALTER TABLE settings MODIFY c int FIRST",
        "SET STATEMENT lock_wait_timeout=5 FOR RENAME TABLE settings TO other",
        "SET STATEMENT lock_wait_timeout=5 FOR SET STATEMENT max_statement_time=9 FOR RENAME TABLE other TO settings",
    ],
    "phases": [
        "CREATE TABLE phases (a int, b int)",
        "ALTER TABLE phases MODIFY b int FIRST, ALGORITHM=COPY",
        "!ALTER TABLE phases MODIFY a int FIRST, ADD CONSTRAINT CHECK (a < 0), ALGORITHM=COPY",
        "ALTER TABLE phases CHANGE a z int",
    ],
    "versions": [
        "=SET system_versioning_alter_history = KEEP",
        "CREATE TABLE versions (a int WITH SYSTEM VERSIONING, b int)",
        "ALTER TABLE versions ADD c int AFTER a",
        "ALTER TABLE versions DROP SYSTEM VERSIONING",
        "ALTER TABLE versions ADD row_start int, ADD d int FIRST",
    ],
    "periods": [
        "=SET system_versioning_alter_history = KEEP",
        "CREATE TABLE periods (a int, s timestamp(6) GENERATED ALWAYS AS ROW START, e timestamp(6) AS ROW END,"
        " PERIOD FOR SYSTEM_TIME (s, e), b int) WITH SYSTEM VERSIONING",
        "ALTER TABLE periods ADD c int",
    ],
}
# A character set, bytes of a name in it, and the name.
RARE = [
    ("macce", b"\xfc", "Ł"),
    ("macroman", b"\x8e", "é"),
    ("keybcs2", b"\xa0\x81", "áü"),
    ("dec8", b"\xd7", "Œ"),
    ("hp8", b"\xc5", "é"),
    ("armscii8", b"\xb3", "\u0561"),
    ("geostd8", b"\xc5", "ვ"),
    ("binary", "é".encode(), "é"),
    ("gbk", "編號".encode("gbk"), "編號"),
]

Row = tuple[str, list[tuple[str, int]]]


@dataclass
class Writer:
    """Runs statements on a server and inserts rows. written: each row as the server shows it, in the table's order."""

    server: SqlServer
    written: list[Row] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.server.execute("CREATE DATABASE c")
        self.session = self.server.connect(database="c", autocommit=True)

    def run(self, tables: dict[str, list[str]]) -> None:
        """Run the statements of each table."""
        for table, statements in tables.items():
            for statement in statements:
                self._execute(statement.lstrip("!="), fails=statement.startswith("!"))
                if not statement.startswith("="):
                    self.insert(table)

    def _execute(self, statement: str | bytes, *, fails: bool = False) -> None:
        with self.session.cursor() as cursor:
            if fails:
                with pytest.raises(pymysql.MySQLError):
                    cursor.execute(statement)
            else:
                cursor.execute(statement)

    def insert(self, table: str) -> None:
        """Insert a row of numbers that no other row or column has, if the table is there."""
        if not self.server.query("SELECT 1 FROM information_schema.tables WHERE table_name = %s", table):
            return
        shown = self.server.query(f"SHOW COLUMNS FROM c.{table}")
        plain = [str(row["Field"]) for row in shown if "timestamp" not in row["Type"]]
        given = [str(row["Field"]) for row in shown if row["Field"] in plain and "auto_increment" not in row["Extra"]]
        values = {name: next(self.numbers) for name in given}
        named = ", ".join("`" + name.replace("`", "``") + "`" for name in given)
        with self.server.connect(database="c", autocommit=True) as session, session.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} ({named}) VALUES ({', '.join(map(str, values.values()))})")
            key = cursor.lastrowid
        self.written.append((table, [(name, values.get(name, key)) for name in plain]))


def read(server: SqlServer, fetch: Fetch = lambda schema, table: None) -> list[Row]:
    """The rows that a decoder makes of the newest journal's file, without the timestamps of system versioning."""
    journal, _ = server.position()
    decoder = Decoder(
        source=Source(server.address[0], server.port),
        journal=journal,
        position=4,
        options=DecodeOptions(),
        tables=TableFilter(r"c\..*", ""),
        fields=FieldFilter("", ""),
        history=History(fetch).view(None),
    )
    outputs = decoder.feed_file((server.data / journal).read_bytes())
    return list(_rows(out for out in outputs if isinstance(out, Segment)))


def _rows(segments: Iterable[Segment]) -> Iterable[Row]:
    for segment in segments:
        for row in rows_of(segment.entries()):
            if row.after is not None:
                yield row.table, [(name, value) for name, value in row.after.items() if isinstance(value, int)]


def test_names_on_mysql() -> None:
    """Columns named like hidden ones, the generated key, comments, sql_mode, odd names."""
    with MySQL(row_metadata="MINIMAL") as server:
        writer = Writer(server)
        writer.run(EITHER | MYSQL_ONLY)
        assert read(server) == writer.written


def test_names_on_mariadb() -> None:
    """The same, and SET STATEMENT, system versioning, and ALTER TABLE in two phases, one of which fails."""
    with MariaDB(row_metadata="MINIMAL", extra=["--binlog-alter-two-phase=ON"]) as server:
        writer = Writer(server)
        writer.run(EITHER | MARIADB_ONLY)
        assert read(server) == writer.written


@pytest.mark.parametrize("make", [MySQL, MariaDB])
@pytest.mark.nightly("tests/node/test_differential.py: tables in many charsets")
def test_names_in_rare_charsets(make: type[SqlServer]) -> None:
    """A name is what its session's charset makes of its bytes."""
    with make(row_metadata="MINIMAL") as server:
        writer = Writer(server)
        for charset, raw, name in RARE:
            with server.connect(database="c", autocommit=True) as session, session.cursor() as cursor:
                cursor.execute(f"SET NAMES {charset}")
                cursor.execute(b"CREATE TABLE t_" + charset.encode() + b" (a int, `" + raw + b"` int)")
            writer.insert(f"t_{charset}")
            assert [column for column, _ in writer.written[-1][1]] == ["a", name]
        assert read(server) == writer.written


@pytest.mark.parametrize("make", [MySQL, MariaDB])
def test_a_drop_that_was_not_logged(make: type[SqlServer]) -> None:
    """The rest of the columns do not move to the names of those before them."""
    with make(row_metadata="MINIMAL") as server:
        writer = Writer(server)
        writer.run({"t": ["CREATE TABLE t (a int, b int, c int)", "=SET sql_log_bin = 0", "ALTER TABLE t DROP b"]})

        def fetch(schema: str, table: str) -> str:
            return str(server.query(f"SHOW CREATE TABLE `{schema}`.`{table}`")[0]["Create Table"])

        assert read(server, fetch) == writer.written
