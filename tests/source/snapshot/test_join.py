"""The parts of a snapshot that need no server: keys, pace, window, result sets, statements, and the junction."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.config.model import SnapshotLimits
from canal_ha.decode.kernel.images import END, ERROR, MORE, RowPackets
from canal_ha.errors import RingClosed, SnapshotRefused
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.model.snapshot import SnapshotState
from canal_ha.model.table import Column
from canal_ha.source.snapshot.junction import Junction, Watched
from canal_ha.source.snapshot.key import TableKey, key_of
from canal_ha.source.snapshot.local_time import repeated
from canal_ha.source.snapshot.marker import marker
from canal_ha.source.snapshot.pace import Pace, Rate
from canal_ha.source.snapshot.progress import SnapshotProgress
from canal_ha.source.snapshot.result_set import RowPiece, values_of
from canal_ha.source.snapshot.statements import concerns, may_name, refills, replaces
from canal_ha.source.snapshot.watch import StatementWatch
from canal_ha.source.snapshot.watermark import Reached
from canal_ha.source.snapshot.window import Window
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from tests import time_zone
from tests.segments import HERE, Item, segment
from tests.waiting import until

COLUMNS = (
    Column("id", "bigint(20) unsigned"),
    Column("Name", "varchar(20)", charset="utf8mb4"),
    Column("raw", "binary(3)"),
    Column("at", "datetime(6)"),
    Column("kind", "enum('a','b')"),
    Column("addr", "inet6"),
    Column("doc", "json"),
)
COLLATIONS = {"Name": ("utf8mb4", "utf8mb4_bin")}


def index(name: str, *columns: str | None, **more: Any) -> list[dict[str, Any]]:
    """Return the rows of SHOW INDEX for a unique key."""
    return [
        {"Key_name": name, "Seq_in_index": at, "Column_name": column, "Non_unique": 0, "Sub_part": None, "Null": ""}
        | more
        for at, column in enumerate(columns, 1)
    ]


def key(*columns: str) -> TableKey:
    """Return the primary key of these columns."""
    found = key_of(COLUMNS, COLLATIONS, index("PRIMARY", *columns))
    assert found is not None
    return found


# ---- keys


def test_the_primary_key_comes_first() -> None:
    """Then unique keys by name; those that cannot tell every row apart are left out."""
    unique = index("a", "raw") + index("b", "id", Sub_part=3)
    assert key_of(COLUMNS, COLLATIONS, unique + index("PRIMARY", "id")).names == ("id",)  # type: ignore[union-attr]  # there
    assert key_of(COLUMNS, COLLATIONS, unique).names == ("raw",)  # type: ignore[union-attr]  # as above
    for unusable in (
        index("a", "id", Null="YES"),
        index("a", "Name", Sub_part=5),
        index("a", None),
        index("a", "id", Non_unique=1),
        index("a", "doc"),
    ):
        assert key_of(COLUMNS, COLLATIONS, unusable) is None
    assert key_of(COLUMNS, {}, index("a", "Name")) is None


def test_the_condition_begins_behind_a_key() -> None:
    """The order of the key's columns decides, and each value stands as its type needs it."""
    one = key("id")
    assert one.condition(one.texts([b"7"])) == "`id` > 7"
    two = key("Name", "id")
    texts = two.texts([b"7", "a'ü".encode()])
    assert texts == ("Name:utf8mb4_bin=0x6127c3bc", "id=7")
    assert two.condition(texts) == (
        "`Name` >= _utf8mb4 X'6127c3bc' AND (`Name` > _utf8mb4 X'6127c3bc'"
        " OR (`Name` = _utf8mb4 X'6127c3bc' AND (`id` > 7)))"
    )
    assert two.order == "`Name`, `id`"
    others = key("raw", "at", "kind", "addr")
    texts = others.texts([b"", b"", b"\0'\xff", b"2020-01-02 03:04:05.000006", b"2", b"\x01" * 16])
    assert texts == (
        "raw=0x0027ff",
        "at:datetime=2020-01-02 03:04:05.000006",
        "kind:61a5b846=2",
        "addr:inet6=0x" + "01" * 16,
    )
    assert f"`addr` > '{':'.join(['101'] * 8)}'" in others.condition(texts)
    assert "`at` > '2020-01-02 03:04:05.000006'" in others.condition(texts)
    assert others.order.endswith("CAST(`kind` AS UNSIGNED), `addr`")
    assert others.index == ""
    assert key("addr", "id").index == "PRIMARY"
    assert two.index == "PRIMARY"


@pytest.mark.parametrize("text", ["id=7 OR 1", "id=", "id", "uid=7", "id='7'", "id=7;", "id=0x7", "id=1e", "=7"])
def test_a_text_that_is_no_value_of_the_key_never_becomes_sql(text: str) -> None:
    """Whoever can write a cursor must not write statements."""
    assert not key("id").continues((text,))
    assert not key("id").continues(())
    assert not key("at").continues(("at:datetime=2020' OR '1",))
    assert not key("Name").continues(("Name:utf8mb4_bin=0x6' OR X'61",))
    assert not key("addr").continues(("addr:inet6=0x0102",))
    assert not key("addr").continues(("addr=0x" + "01" * 16,))  # of a version that ordered by bytes


def test_a_place_in_another_order_is_no_place() -> None:
    """Another collation, other labels or another type of time put other rows behind a key."""

    def keys(collation: str, labels: str, time: str) -> TableKey:
        columns = (Column("a", "varchar(9)"), Column("b", f"enum({labels})"), Column("c", time))
        found = key_of(columns, {"a": ("utf8mb4", collation)}, index("PRIMARY", "a", "b", "c"))
        assert found is not None
        return found

    one = keys("utf8mb4_bin", "'a','b'", "datetime(3)")
    texts = one.texts([b"x", b"1", b"2020-01-01 00:00:00.000"])
    assert one.continues(texts)
    assert keys("utf8mb4_bin", "'a','b'", "datetime").continues(texts)
    assert not keys("utf8mb4_general_ci", "'a','b'", "datetime(3)").continues(texts)
    assert not keys("utf8mb4_bin", "'b','a'", "datetime(3)").continues(texts)
    assert not keys("utf8mb4_bin", "'a','b'", "timestamp(3)").continues(texts)


# ---- pace


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 100)), max_size=20),
    st.integers(1, 10**6),
    st.integers(1, 10**7),
    st.integers(0, 10**6),
)
def test_a_chunk_has_rows_and_keeps_the_limits(
    taken: list[tuple[int, float]], rows_most: int, bytes_most: int, row_bytes: int
) -> None:
    """Whatever chunks take, the next one asks for at least one row and for at most the limit."""
    limits = SnapshotLimits(rows_most=rows_most, bytes_most=bytes_most)
    pace = Pace(limits, row_bytes)
    for size, seconds in taken:
        assert 1 <= pace.rows <= rows_most
        pace.took(pace.rows, size, seconds)
    assert 1 <= pace.rows <= rows_most


def test_the_pace_finds_the_target() -> None:
    """A server that reads 10,000 rows a second gets chunks of that size, and rows of 1 KB fill the bytes."""
    pace = Pace(SnapshotLimits())
    assert pace.rows == 1000
    for _ in range(10):
        pace.took(pace.rows, pace.rows, pace.rows / 10_000)
    assert pace.rows == 10_000
    for _ in range(10):
        pace.took(pace.rows, pace.rows * 1024, 0.001)
    assert pace.rows == (4 << 20) // 1024
    assert pace.too_long()
    assert pace.rows == (4 << 20) // 2048
    pace.took(0, 0, 0.0)
    assert pace.rows == (4 << 20) // 2048
    assert Pace(SnapshotLimits(), row_bytes=1 << 20).rows == 4
    assert not Pace(SnapshotLimits(rows_most=1)).too_long()
    assert Pace(SnapshotLimits(rows_per_s=50)).rows == 50


def test_a_select_that_locks_its_rows_is_shorter() -> None:
    """The next one is shorter as soon as one has locked, and a shorter target stays as it is."""
    for chunk_s, rows in ((1.0, 2_000), (0.05, 500)):
        pace = Pace(SnapshotLimits(chunk_s=chunk_s))
        for _ in range(10):
            pace.took(pace.rows, pace.rows, pace.rows / 10_000)
        pace.took(pace.rows, pace.rows, pace.rows / 10_000, locked=True)
        assert pace.rows == rows


def test_selects_that_sort_the_rest_of_a_table_are_few() -> None:
    """The sort takes as long for one row. Rows shrank to one for each SELECT, and a large table did not end."""
    pace = Pace(SnapshotLimits(), sorts=True)
    for _ in range(10):
        pace.took(pace.rows, pace.rows * 100, 20.0, locked=True)
    assert pace.rows == (4 << 20) // 100
    pace = Pace(SnapshotLimits(rows_most=3000), sorts=True)
    pace.took(pace.rows, pace.rows, 20.0)
    assert pace.rows == 3000


def test_a_select_that_sorts_does_not_grow_near_the_time_at_which_the_server_ends_it() -> None:
    """A larger one would be ended again and again."""
    pace = Pace(SnapshotLimits(select_s=30.0), sorts=True)
    pace.took(pace.rows, pace.rows, 20.0)
    assert pace.rows == 1000
    assert pace.too_long()
    pace.took(pace.rows, pace.rows, 14.0)
    assert pace.rows == 2000


def test_connections_share_a_rate() -> None:
    """Chunks of two connections that begin together wait one after the other; time without chunks is not saved up."""
    rate = Rate(100)
    assert rate.pause_s(50, 10.0, 10.1) == pytest.approx(0.4)
    assert rate.pause_s(50, 10.0, 10.1) == pytest.approx(0.9)
    assert rate.pause_s(50, 20.0, 20.1) == pytest.approx(0.4)
    assert Rate(0).pause_s(50, 10.0, 10.1) == 0


# ---- the window


def test_rows_that_the_stream_brings_are_left_out() -> None:
    """Whether they come before the chunk's keys are known or after that; others do not count."""
    window = Window()
    window.record([("1",), ("9",)])
    window.read([("1",), ("2",), ("3",)])
    window.record([("3",), ("8",)])
    assert window.left_out == [0, 2]
    assert window.valid
    assert window.recorded


def test_a_window_keeps_no_end_of_keys() -> None:
    """A stream far behind could bring any number of rows before the SELECT is done."""
    window = Window(most=3)
    window.record([(str(number),) for number in range(4)])
    assert window.overflowed
    assert not window.valid
    assert not window.recorded


def test_a_key_that_two_rows_share_makes_the_window_useless() -> None:
    """Only if it is one of the chunk's: nobody knows which row has changed."""
    window = Window(shared=lambda key: key == ("2",))
    window.record([("1",), ("2",)])
    window.read([("1",), ("3",)])
    assert window.valid
    assert window.left_out == [0]
    for first in (True, False):
        window = Window(shared=lambda key: key == ("2",))
        if first:
            window.record([("2",)])
        window.read([("1",), ("2",)])
        if not first:
            window.record([("2",)])
        assert window.unclear
        assert not window.valid


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("Europe/Berlin", "2020-10-25 02:30:00.000001", True),
        ("Europe/Berlin", "2020-10-25 02:00:00", True),
        ("Europe/Berlin", "2020-10-25 01:59:59", False),
        ("Europe/Berlin", "2020-10-25 03:00:00", False),
        ("Europe/Berlin", "2020-03-29 02:30:00", False),
        ("Europe/Moscow", "2014-10-26 01:30:00", True),  # for good, without summer time
        ("Australia/Lord_Howe", "2020-04-05 01:45:00", True),  # by half an hour
        ("UTC", "2020-10-25 02:30:00", False),
        ("UTC", "0000-00-00 00:00:00", False),
    ],
)
def test_local_times_that_clocks_show_twice(zone: str, text: str, expected: bool) -> None:
    """Clocks that are set back repeat some time."""
    with time_zone.zone(zone):
        assert repeated(text) is expected


# ---- result sets


def test_values_of_the_last_row() -> None:
    """NULL is told from an empty text; long values have longer prefixes."""
    values = [b"1", None, b"", b"x" * 300, b"y" * 70000]
    content = b"\x011\xfb\x00\xfc" + (300).to_bytes(2, "little") + b"x" * 300
    content += b"\xfd" + (70000).to_bytes(3, "little") + b"y" * 70000
    packets = b"\1\0\0\0?" + len(content).to_bytes(3, "little") + b"\5" + content
    assert values_of(RowPiece(packets, 0, 2, 5)) == values


def scanned(data: bytes, step: int, most: int = 0) -> tuple[int, int, int, int]:
    """Return what the packets of a result have if `step` bytes come at a time."""
    found = RowPackets()
    state = MORE
    for stop in [*range(0, len(data), step), len(data)]:
        state = found.scan(bytearray(data[:stop]), stop, most)
        if state != MORE or (most and found.count == most):
            break
    return state, found.count, found.last, found.started


@pytest.mark.parametrize("step", [1, 3, 4, 1000, 1 << 25])
def test_rows_are_found_however_their_bytes_come(step: int) -> None:
    """The end and an error are packets with a first byte of their own, which a huge value has, too."""
    rows = b"\3\0\0\1\2ab" + b"\1\0\0\2\xfb"
    end, error = b"\5\0\0\3\xfe\0\0\2\0", b"\3\0\0\3\xff\1\2"
    assert scanned(rows + end, step) == (END, 2, 7, 12)
    assert scanned(rows + error, step) == (ERROR, 2, 7, 12)
    assert scanned(rows, step) == (MORE, 2, 7, 12)
    assert scanned(rows + end, step, most=1) == (MORE, 1, 0, 7)
    if step > 100:
        huge = b"\xff\xff\xff\0\xfe" + bytes(0xFFFFFE) + b"\1\0\0\1x"
        assert scanned(rows + huge + end, 1 << 24) == (END, 3, 12, 12 + len(huge))


# ---- statements


def entry(sql: str, *, schema: str = "shop", table: str = "orders", ddl: bool = True, default: str = "shop") -> bytes:
    """Return the entry of a statement. default: schema of names without one."""
    change = pb.RowChange(isDdl=ddl, sql=sql, ddlSchemaName=default)
    header = pb.Header(schemaName=schema, tableName=table)
    return pb.Entry(header=header, entryType=pb.ROWDATA, storeValue=change.SerializeToString()).SerializeToString()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (entry("ALTER TABLE orders ADD x INT"), True),
        (entry("RENAME TABLE a TO b, ORDERS TO c", table="a"), True),
        (entry("DROP DATABASE Shop", table=""), True),
        (entry("", table=""), True),
        (entry("CREATE TABLE b (id INT)", table="b"), False),
        (entry("CREATE TABLE orders_tmp (id INT)", table="orders_tmp"), False),
        (entry("DROP TABLE IF EXISTS my_orders, `orders 2`", table="my_orders"), False),
        (entry("DROP TABLE x, `ORDERS`", table="x"), True),
        (entry("ALTER TABLE x ADD orders INT COMMENT 'orders'", table="x"), False),
        (entry("ALTER TABLE x ADD FOREIGN KEY (a) REFERENCES orders (id)", table="x"), False),
        (entry("CREATE TABLE x LIKE orders", table="x"), False),
        (entry("ALTER TABLE other.orders ADD x INT", schema="other"), False),
        (entry("ALTER TABLE shop.orders ADD x INT", default="other"), True),
        (entry("ALTER TABLE orders ADD x INT", schema="other", default="other"), False),
        (entry("ALTER TABLE x RENAME TO orders", table="x"), True),
        (entry("ALTER TABLE x EXCHANGE PARTITION p WITH TABLE orders", table="x"), True),
        (entry("TRUNCATE orders", table="x"), True),
        (entry("CREATE UNIQUE INDEX i ON orders (a)"), True),
        (entry("RENAME TABLE `orders` SOMEHOW", table=""), True),
        (entry("RENAME TABLE orders2 SOMEHOW", table=""), False),
        (entry("OPTIMIZE TABLE orders", table=""), True),
        (entry("DROP DATABASE shop_2", schema="shop_2", table=""), False),
        (entry("DROP DATABASE other", schema="other", table=""), False),
        (entry("UPDATE orders SET x = 1", table="", ddl=False), False),
    ],
)
def test_statements_that_may_change_the_table(raw: bytes, expected: bool) -> None:
    """The original statements of changed rows do not count: the rows themselves do."""
    assert concerns(raw, schema="shop", table="orders") is expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("RENAME TABLE Orders TO old, shop.new TO orders", True),
        ("RENAME TABLE other.orders TO other.x", False),
        ("ALTER TABLE new RENAME TO orders", True),
        ("ALTER TABLE parts EXCHANGE PARTITION p WITH TABLE orders", True),
        ("ALTER TABLE orders EXCHANGE PARTITION p WITH TABLE other", True),
        ("ALTER TABLE parts CONVERT PARTITION p TO TABLE orders", True),
        ("ALTER TABLE orders CONVERT TABLE old TO PARTITION p VALUES LESS THAN (9)", True),
        ("ALTER TABLE orders IMPORT TABLESPACE", True),
        ("ALTER TABLE orders IMPORT PARTITION p, q TABLESPACE", True),
        ("ALTER TABLE other IMPORT TABLESPACE", False),
        ("ALTER TABLE orders DISCARD TABLESPACE", False),
        ("DROP TABLE IF EXISTS x, `orders`", True),
        ("DROP DATABASE shop", True),
        ("CREATE OR REPLACE DATABASE shop", True),
        ("CREATE DATABASE shop", False),
        ("CREATE OR REPLACE TABLE orders (id INT)", True),
        ("CREATE TABLE orders LIKE old", True),
        ("RENAME TABLE orders SOMEHOW", True),
        ("ALTER TABLE orders ADD x INT, ALGORITHM = COPY", False),
        ("ALTER TABLE orders ENGINE = InnoDB", False),
        ("ALTER TABLE orders RENAME COLUMN a TO b, RENAME INDEX c TO d", False),
        ("ALTER TABLE orders RENAME COLUMN a TO ID", True),
        ("ALTER TABLE orders RENAME COLUMN id TO a", True),
        ("ALTER TABLE orders CHANGE a id INT", True),
        ("ALTER TABLE orders CHANGE Id a INT", True),
        ("ALTER TABLE orders ADD COLUMN (a INT, id INT)", True),
        ("ALTER TABLE orders DROP id", True),
        ("ALTER TABLE orders MODIFY id YEAR", True),
        ("ALTER TABLE orders MODIFY id INT AS (-a) STORED", True),
        ("ALTER TABLE orders MODIFY id BIGINT UNSIGNED NOT NULL COMMENT 'x'", False),
        ("ALTER TABLE orders CHANGE id ID INT(11) AFTER a", False),
        ("ALTER TABLE orders MODIFY a YEAR, DROP b, ADD c INT", False),
        ("ALTER TABLE other DROP id", False),
        ("ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (x)", False),
        ("ALTER TABLE orders REORGANIZE PARTITION p INTO (PARTITION q VALUES LESS THAN (9))", False),
        ("TRUNCATE TABLE orders", False),
        ("CREATE TABLE IF NOT EXISTS orders (id INT)", False),
        ("CREATE TEMPORARY TABLE orders (id INT)", False),
        ("DROP TEMPORARY TABLE orders", False),
        ("CREATE INDEX i ON orders (id)", False),
        ("OPTIMIZE TABLE orders", False),
        ("GRANT SELECT ON orders TO x", False),
    ],
)
def test_statements_by_which_another_table_takes_the_name(sql: str, expected: bool) -> None:
    """The rows that the other table has do not come from the stream. Those of an altered table do."""
    assert replaces(sql, "shop", schema="Shop", table="orders", key={"id", "no"}) is expected
    assert may_name(sql, ("Shop.orders",)) or not expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("RENAME TABLE Orders TO old, shop.new TO orders", True),
        ("RENAME TABLE orders TO old", False),
        ("RENAME TABLE orders SOMEHOW", True),
        ("RENAME TABLE others SOMEHOW", False),
        ("ALTER TABLE new RENAME TO orders", True),
        ("ALTER TABLE orders RENAME TO old", False),
        ("ALTER TABLE parts EXCHANGE PARTITION p WITH TABLE orders", True),
        ("ALTER TABLE orders EXCHANGE PARTITION p WITH TABLE other", True),
        ("ALTER TABLE parts CONVERT PARTITION p TO TABLE orders", True),
        ("ALTER TABLE orders CONVERT PARTITION p TO TABLE other", False),
        ("ALTER TABLE orders CONVERT TABLE old TO PARTITION p VALUES LESS THAN (9)", True),
        ("ALTER TABLE parts CONVERT TABLE orders TO PARTITION p VALUES LESS THAN (9)", False),
        ("ALTER TABLE orders IMPORT TABLESPACE", True),
        ("ALTER TABLE orders DROP id, ADD id INT", False),
        ("DROP TABLE orders", False),
        ("DROP DATABASE shop", False),
        ("CREATE OR REPLACE TABLE orders (id INT)", False),
    ],
)
def test_statements_that_bring_rows_which_the_stream_does_not(sql: str, expected: bool) -> None:
    """A table that was read is read again then. If it is only gone, its snapshot has nothing left to read of it."""
    assert refills(sql, "shop", schema="Shop", table="orders") is expected
    assert may_name(sql, ("Shop.orders",)) or not expected


@pytest.mark.parametrize(
    ("sql", "schema", "table", "expected"),
    [
        ("DROP TABLE `a``b`", "shop", "a`b", True),
        ('DROP TABLE "a""b"', "shop", 'a"b', True),
        ("DROP TABLE GRÖSSEN", "shop", "größen", True),
        ("DROP TABLE ΑΣ.b", "ΑΣ", "b", True),
        ("DROP SCHEMA Shop", "shop", "orders", True),
        ("DROP DATABASE `a``b`", "a`b", "orders", True),
        ("DROP TABLE shop.items", "shop", "orders", False),
        ("GRANT SELECT ON shop.* TO x", "shop", "orders", False),
        ("DROP SCHEMA other", "shop", "orders", False),
    ],
)
def test_a_statement_that_names_no_table_is_known_by_its_text(
    sql: str, schema: str, table: str, expected: bool
) -> None:
    """A name that can be written in several ways is in doubt."""
    assert may_name(sql, ("zoo.zebra", f"{schema}.{table}")) == ([1] if expected else [])


def test_statements_do_not_hold_the_stream_of_a_snapshot_of_thousands_of_tables() -> None:
    """Each statement, about whichever table, took the thread of the feed 15 ms or more."""
    progress = SnapshotProgress(SnapshotState("s1", tuple(f"shop.t{number}" for number in range(5000))))
    junction = Junction(lambda segment: None, lambda: None)
    watch = StatementWatch(progress, junction, lambda tables: None)
    began = time.process_time()
    for number in range(100):
        watch.altering("shop", f"ALTER TABLE other.o{number} ADD COLUMN c INT")
    assert time.process_time() - began < 0.8  # it takes 0.1 s


def test_any_column_may_be_of_an_unknown_key() -> None:
    """An earlier feed may have read the table by it."""
    assert replaces("ALTER TABLE orders DROP x", "shop", schema="shop", table="orders", key=None)
    assert not replaces("ALTER TABLE orders ENGINE = InnoDB", "shop", schema="shop", table="orders", key=None)


# ---- the junction


JOURNAL = "mysql-bin.000001"


class Stage:
    """A junction whose feed the test plays."""

    def __init__(self) -> None:
        self.taken: list[Segment] = []
        self.decoded: LogPosition | None = LogPosition(JOURNAL, 100, server="s")
        self.keys: list[tuple[str, ...]] = []
        self.closed = self.fails = False
        self.junction = Junction(self._accept, lambda: self.decoded)

    def _accept(self, segment: Segment) -> None:
        if self.closed:
            raise RingClosed("closed")
        if self.fails:
            raise MemoryError
        self.taken.append(segment)

    def watched(self, altered: bool = False) -> Watched:
        return Watched(self._keys, lambda raw: altered)

    def _keys(self, segment: Segment) -> Iterable[tuple[str, ...]]:
        return self.keys

    def feed(self, offset: int, *, cut: bool = False, kind: EntryKind = EntryKind.ROWS, decoded: bool = True) -> None:
        """Let the feed pass a segment on, which ends 10 bytes behind `offset`."""
        items = [Item(offset - 5, kind)] + ([] if cut else [Item(offset, EntryKind.END)])
        self.junction.accept(replace(segment(items), cut=cut))
        if decoded and not cut:
            self.decoded = LogPosition(JOURNAL, offset + 10, server="s")


def made(at: LogPosition) -> Segment:
    """Return a chunk without rows."""
    return marker(at, HERE)


def test_a_window_opens_and_closes_between_transactions() -> None:
    """Inside a transaction the snapshot waits; what came before the window counts as brought."""
    stage = Stage()
    stage.feed(110, cut=True)
    opened: list[Any] = []
    thread = threading.Thread(target=lambda: opened.append(stage.junction.open(stage.watched())))
    thread.start()
    thread.join(0.1)
    assert not opened
    stage.feed(120, decoded=False)
    stage.feed(140, cut=True)  # the window opens before it
    thread.join(5)
    (begun,) = opened
    assert (begun.brought.journal, begun.brought.offset) == (JOURNAL, 121)
    used: list[bool] = []
    end = Reached(JOURNAL, 150, "s")
    thread = threading.Thread(target=lambda: used.append(stage.junction.put(begun.window, end, made)))
    thread.start()
    stage.feed(145, cut=True)
    stage.decoded = LogPosition(JOURNAL, 135, server="s")
    thread.join(0.1)
    assert not used
    stage.feed(160)
    thread.join(5)
    assert used == [True]
    assert stage.taken[-1].offsets[0] == 170
    assert bytes(stage.taken[-1].kinds) == bytes([EntryKind.BEGIN, EntryKind.END])


def test_a_state_enters_before_the_next_segment() -> None:
    """Inside a transaction it enters behind its end, once, if it is needed then."""
    stage = Stage()
    stage.feed(110)
    stage.junction.ahead(lambda at, source: marker(at, source))
    stage.feed(130)
    assert [each.offsets[0] for each in stage.taken] == [105, 120, 125]
    stage.feed(150, cut=True)
    stage.junction.ahead(lambda at, source: marker(at, source))
    stage.feed(160, cut=True)
    assert [each.offsets[0] for each in stage.taken[3:]] == [145, 155]
    items = [Item(170, EntryKind.ROWS), Item(180, EntryKind.END), Item(190, EntryKind.DDL)]
    stage.junction.accept(segment(items))
    assert [list(each.offsets) for each in stage.taken[5:]] == [[170, 180], [180, 180], [190]]
    stage.junction.ahead(lambda at, source: None)
    stage.feed(210)
    assert [each.offsets[0] for each in stage.taken[8:]] == [205]


def test_keys_and_statements_count_while_a_window_is_open() -> None:
    """Before it and after it, nothing is looked at."""
    stage = Stage()
    stage.keys = [("1",)]
    stage.feed(110)
    opened = stage.junction.open(stage.watched())
    assert opened is not None
    before = opened.window.recorded
    stage.feed(130)
    assert (before, opened.window.recorded) == (False, True)
    opened.window.read([("1",)])
    assert opened.window.left_out == [0]
    assert stage.junction.put(opened.window, Reached(JOURNAL, 140, "s"), made)
    stage.junction.close(opened.window)
    later = stage.junction.open(stage.watched(altered=True))
    assert later is not None
    stage.feed(150, kind=EntryKind.DDL)
    assert later.window.altered
    assert not stage.junction.put(later.window, Reached(JOURNAL, 150, "s"), made)


def test_no_key_is_lost_that_the_stream_brings_while_a_chunk_takes_its_own() -> None:
    """An older row went over a newer one."""
    stage = Stage()
    keys = [("1",), ("2",)]
    first, last = frozenset(keys)  # in the order in which they are looked for

    class Busy(tuple[str, ...]):
        """A key; while it is compared for the first time, the stream brings the row that was looked for before."""

        __slots__ = ()
        feeds: ClassVar[list[threading.Thread]] = []
        __hash__ = tuple.__hash__

        def __eq__(self, other: object) -> bool:
            if not self.feeds:
                stage.keys = [first]
                self.feeds.append(threading.Thread(target=stage.feed, args=(150,)))
                self.feeds[0].start()
                self.feeds[0].join(0.2)
            return tuple.__eq__(self, other)

    opened = stage.junction.open(stage.watched())
    assert opened is not None
    stage.keys = [Busy(last), ("3",), ("4",)]
    stage.feed(110)
    stage.junction.narrow(opened.window, keys)
    (feed,) = Busy.feeds
    feed.join(5)
    assert opened.window.left_out == [0, 1]


def test_windows_of_several_chunks_are_open_at_once() -> None:
    """Each keeps what came since it opened; the stream passes one chunk at a time, and looks once for one table."""
    stage = Stage()
    looks: list[Segment] = []

    def keys(segment: Segment) -> Iterable[tuple[str, ...]]:
        looks.append(segment)
        return stage.keys

    watched = Watched(keys, lambda raw: False)
    first = stage.junction.open(watched)
    stage.keys = [("1",)]
    stage.feed(110)
    second = stage.junction.open(watched)
    assert first is not None
    assert second is not None
    stage.keys = [("2",)]
    stage.feed(130)
    assert len(looks) == 2
    for each in (first, second):
        each.window.read([("1",), ("2",)])
    assert (first.window.left_out, second.window.left_out) == ([0, 1], [1])
    assert stage.junction.put(second.window, Reached(JOURNAL, 140, "s"), made)
    stage.junction.close(second.window)
    used: list[bool] = []
    end = Reached(JOURNAL, 160, "s")
    threads = [
        threading.Thread(target=lambda: used.append(stage.junction.put(first.window, end, made))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    assert not used
    stage.feed(150)  # the stream passes the end behind this segment
    for thread in threads:
        thread.join(5)
    assert used == [True, True]


def test_a_chunk_that_nobody_may_put_any_more_stays_out() -> None:
    """`make` says so at the last moment."""
    stage = Stage()
    opened = stage.junction.open(stage.watched())
    assert opened is not None
    assert not stage.junction.put(opened.window, Reached(JOURNAL, 100, "s"), lambda at: None)
    assert opened.window.valid
    assert not stage.taken


def test_no_chunk_follows_one_that_the_stream_did_not_take() -> None:
    """The state counts its rows by then, and would go on behind them."""
    stage = Stage()
    first, second = stage.junction.open(stage.watched()), stage.junction.open(stage.watched())
    assert first is not None
    assert second is not None
    stage.fails = True
    with pytest.raises(MemoryError):
        stage.junction.put(first.window, Reached(JOURNAL, 100, "s"), made)
    stage.fails = False
    assert not stage.junction.put(second.window, Reached(JOURNAL, 100, "s"), made)
    assert not stage.taken


def test_another_server_makes_the_window_useless() -> None:
    """Positions of two servers cannot be compared."""
    stage = Stage()
    opened = stage.junction.open(stage.watched())
    assert opened is not None
    stage.junction.moved(None, None)
    assert not stage.junction.put(opened.window, Reached(JOURNAL, 100, "s"), made)


def test_the_next_window_knows_what_another_server_has_brought() -> None:
    """The last segment counts, also behind the last boundary; nothing does once a server has everything."""
    stage = Stage()
    stage.feed(110)
    stage.junction.moved(LogPosition(JOURNAL, 50), "a:1-9")
    opened = stage.junction.open(stage.watched())
    assert opened is not None
    assert opened.before is not None
    assert (opened.before.offset, opened.before.gtid) == (stage.taken[-1].offsets[-1], "a:1-9")
    stage.junction.moved(None, "a:1-9")
    opened = stage.junction.open(stage.watched())
    assert opened is not None
    assert opened.before is None


def test_keys_that_cannot_be_read_end_the_snapshot_alone() -> None:
    """The stream's segment passes."""

    def refuse(segment: Segment) -> Iterable[tuple[str, ...]]:
        raise SnapshotRefused("no key")

    stage = Stage()
    opened = stage.junction.open(Watched(refuse, lambda raw: False))
    assert opened is not None
    stage.feed(110)
    assert len(stage.taken) == 1
    assert isinstance(opened.window.refused, SnapshotRefused)


def test_a_stop_ends_every_wait() -> None:
    """Also while the stream has no position."""
    stage = Stage()
    stage.decoded = None
    opened: list[Any] = []
    thread = threading.Thread(target=lambda: opened.append(stage.junction.open(stage.watched())))
    thread.start()
    stage.junction.stop()
    until(lambda: bool(opened), what="the end")
    assert opened == [None]


def test_a_transaction_whose_end_is_not_shown_ends_with_the_boundary() -> None:
    """Filters may drop the rest of a large transaction, and ends of transactions."""
    stage = Stage()
    stage.feed(110, cut=True)
    stage.decoded = LogPosition(JOURNAL, 120, server="s")
    opened = stage.junction.open(stage.watched())
    assert opened is not None
    assert opened.at.offset == 120


def test_no_chunk_enters_between_two_servers() -> None:
    """The feed's boundary is of the new server before it tells that it has moved."""
    stage = Stage()
    there = replace(HERE, server_id=1)
    stage.decoded = LogPosition(JOURNAL, 100, server="1")
    stage.junction.accept(replace(segment([Item(90, EntryKind.ROWS), Item(95, EntryKind.END)]), source=there))
    opened = stage.junction.open(stage.watched())
    assert opened is not None
    window = opened.window
    stage.decoded = LogPosition("mysql-bin.000009", 4, server="2")
    used: list[bool] = []
    thread = threading.Thread(target=lambda: used.append(stage.junction.put(window, Reached(JOURNAL, 150, "1"), made)))
    thread.start()
    thread.join(0.1)
    assert not used
    stage.junction.moved(None, None)
    thread.join(5)
    assert used == [False]
    assert len(stage.taken) == 1


def test_a_closed_ring_ends_the_snapshot() -> None:
    """The error of the ring reaches the snapshot's thread, and the feed's with its own segment."""
    stage = Stage()
    opened = stage.junction.open(stage.watched())
    assert opened is not None
    stage.closed = True
    with pytest.raises(RingClosed):
        stage.junction.put(opened.window, Reached(JOURNAL, 100, "s"), made)
    with pytest.raises(RingClosed):
        stage.feed(110)
