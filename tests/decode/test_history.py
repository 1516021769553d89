"""Table history: columns by position, the effects of statements, and tables that are not known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Thread

import pytest

from canal_ha.decode.history.history import History
from canal_ha.decode.history.versions import Trust, Version, Versions
from canal_ha.decode.table_map import TableMap
from canal_ha.errors import TableUnknown
from canal_ha.model.position import LogPosition
from canal_ha.model.table import TableSchema

INT, BIGINT, VARCHAR = (3, 0), (8, 0), (15, 40)


def at(offset: int, journal: str = "bin.000001") -> LogPosition:
    """Return a position."""
    return LogPosition(journal, offset)


def event(
    *columns: tuple[int, int],
    table: str = "t",
    schema: str = "s",
    names: str | None = None,
    key: tuple[int, ...] | None = None,
    unsigned: tuple[bool, ...] | None = None,
) -> TableMap:
    """Return a table map of (type code, metadata) columns; with names it carries full metadata."""
    full = names.split() if names else None
    return TableMap(
        table_id=1,
        schema=schema,
        name=table,
        types=bytes(code for code, _ in columns),
        metas=tuple(meta for _, meta in columns),
        nullable=(True,) * len(columns),
        unsigned=unsigned if unsigned or not full else (False,) * len(columns),
        names=tuple(full) if full else None,
        primary_key=key if key is not None or not full else (),
    )


def server(**tables: str) -> Callable[[str, str], str | None]:
    """Return a function that gives the text of SHOW CREATE TABLE by table name."""
    return lambda schema, table: tables.get(table)


def texts(schema: TableSchema) -> list[str]:
    """Return `name type` of every column, with `*` after the name of a key."""
    return [f"{column.name}{'*' if column.key else ''} {column.mysql_type}" for column in schema.columns]


def test_a_lagging_stream_sees_the_columns_of_its_position() -> None:
    """A stream gets the columns of its position, although another stream has applied later statements."""
    history = History(server())
    ahead, behind = history.view(at(4)), history.view(at(4))
    ahead.apply(at(100), "s", "CREATE TABLE t (a int)")
    ahead.apply(at(200), "s", "ALTER TABLE t ADD b bigint FIRST")
    ahead.apply(at(50, "bin.000002"), "s", "ALTER TABLE t DROP a")
    assert texts(behind.table(event(INT), at(150))) == ["a int"]
    assert texts(behind.table(event(BIGINT, INT), at(250))) == ["b bigint", "a int"]
    assert texts(behind.table(event(BIGINT), at(60, "bin.000002"))) == ["b bigint"]


def test_a_statement_counts_once() -> None:
    """A second stream that applies the same statements changes nothing and gets the same schema object."""
    history = History(server())
    first, second = history.view(at(4)), history.view(at(4))
    for view in (first, second):
        view.apply(at(100), "s", "CREATE TABLE t (a int)")
        view.apply(at(200), "s", "ALTER TABLE t ADD b int")
    schemas = [view.table(event(INT, INT), at(300)) for view in (first, second)]
    assert texts(schemas[0]) == ["a int", "b int"]
    assert schemas[0] is schemas[1]


def test_versions_tell_changed_columns_apart() -> None:
    """Different schemas of a table have different version numbers."""
    history = History(server())
    view = history.view(at(4))
    view.apply(at(100), "s", "CREATE TABLE t (a int)")
    old = view.table(event(INT), at(110))
    view.apply(at(200), "s", "ALTER TABLE t MODIFY a bigint")
    assert view.table(event(BIGINT), at(210)).version != old.version


_AB = ["a int", "b int"]


@pytest.mark.parametrize(
    ("statements", "columns", "expected"),
    [
        (["CREATE TABLE t (a int PRIMARY KEY, b int)"], [INT, INT], ["a* int", "b int"]),
        (["CREATE TABLE x (a int)", "CREATE TABLE t LIKE x"], [INT], ["a int"]),
        (["CREATE TABLE o.x (a int)", "RENAME TABLE o.x TO t"], [INT], ["a int"]),
        (["CREATE TABLE o.x (a int)", "RENAME TABLES IF EXISTS o.x TO t"], [INT], ["a int"]),
        (["CREATE TABLE x (a int)", "ALTER TABLE x RENAME TO t, ADD b int"], [INT, INT], ["a int", "b int"]),
        (["CREATE TABLE t (a int)", "CREATE TABLE IF NOT EXISTS t (z bigint)"], [INT], ["a int"]),
        (["CREATE TABLE t (a int)", "CREATE OR REPLACE TABLE t (b bigint)"], [BIGINT], ["b bigint"]),
        (["CREATE TABLE t (a int)", "DROP TABLE t", "CREATE TABLE t (b bigint)"], [BIGINT], ["b bigint"]),
        (["CREATE TABLE t (a int)", "DROP DATABASE s", "CREATE TABLE t (b bigint)"], [BIGINT], ["b bigint"]),
        (["CREATE TABLE t (a int)", "DROP TEMPORARY TABLE t"], [INT], ["a int"]),
        (["CREATE TABLE t (a int)", "CREATE TEMPORARY TABLE t (b bigint)"], [INT], ["a int"]),
        (["CREATE TABLE t (a int)", "TRUNCATE t", "CREATE INDEX i ON t (a)"], [INT], ["a int"]),
        (["CREATE TABLE t (a int PRIMARY KEY)", "DROP INDEX `PRIMARY` ON t"], [INT], ["a int"]),
        (
            ["CREATE TABLE t (a int)", "CREATE TABLE u (b bigint)", "RENAME TABLE t TO x, u TO t, x TO u"],
            [BIGINT],
            ["b bigint"],
        ),
        (["CREATE TABLE x (a int)", "ALTER TABLE x CONVERT PARTITION p TO TABLE t"], [INT], ["a int"]),
        (["CREATE TABLE t (a int)", "SET STATEMENT x=(1+1), y='FOR' FOR ALTER TABLE t ADD b int"], [INT, INT], _AB),
        (
            ["CREATE TABLE t (a int)", "SET STATEMENT x=1 FOR SET STATEMENT y=2 FOR ALTER TABLE t ADD b int"],
            [INT, INT],
            _AB,
        ),
        (["CREATE TABLE u (a int)", "SET STATEMENT x=1 FOR RENAME TABLE u TO t"], [INT], ["a int"]),
    ],
)
def test_statements_make_versions(statements: list[str], columns: list[tuple[int, int]], expected: list[str]) -> None:
    """After each kind of statement a table has the columns that it has on the server."""
    view = History(server()).view(at(4))
    for number, sql in enumerate(statements):
        view.apply(at(100 + number), "s", sql)
    assert texts(view.table(event(*columns), at(500))) == expected


def test_a_table_nobody_described_comes_from_the_server() -> None:
    """A table without statements gets the server's present definition, which is fetched once for all streams."""
    asked: list[str] = []

    def fetch(schema: str, table: str) -> str:
        asked.append(f"{schema}.{table}")
        return "CREATE TABLE `t` (\n  `a` int(11) NOT NULL,\n  `b` varchar(10) DEFAULT NULL,\n  PRIMARY KEY (`a`)\n)"

    history = History(fetch)
    view = history.view(at(4))
    assert texts(view.table(event(INT, VARCHAR), at(100))) == ["a* int(11)", "b varchar(10)"]
    assert texts(history.view(at(4)).table(event(INT, VARCHAR), at(50))) == ["a* int(11)", "b varchar(10)"]
    assert asked == ["s.t"], "a stream that had read everything since its start settles that stretch for others too"


@pytest.mark.parametrize(
    "definition",
    [
        None,
        "CREATE TABLE t (a int)",
        "CREATE TABLE t (a int, b int)",
        "CREATE TABLE t (a int, b varchar(11))",
        "CREATE TABLE t (a int unsigned, b varchar(10))",
        "CREATE TABLE t (a int, b varchar(10), c int)",
        "CREATE VIEW t AS SELECT 1",
        "nonsense '",
    ],
)
def test_a_definition_that_disagrees_is_not_taken(definition: str | None) -> None:
    """If the definition does not fit an event without names, TableUnknown names the table and what to do."""
    view = History(lambda schema, table: definition).view(at(4))
    with pytest.raises(TableUnknown, match=r"s\.t at bin\.000001:100 .* binlog_row_metadata=FULL"):
        view.table(event(INT, VARCHAR, unsigned=(False, False)), at(100))


def test_the_statement_that_made_a_table_uncertain_is_named() -> None:
    """The error for CREATE TABLE ... AS SELECT, whose columns cannot be known, contains the statement."""
    view = History(server()).view(at(4))
    view.apply(at(90), "s", "CREATE TABLE t AS SELECT * FROM elsewhere")
    with pytest.raises(TableUnknown, match=r"CREATE TABLE t AS SELECT \* FROM elsewhere"):
        view.table(event(INT), at(100))


def test_names_in_the_event_rebuild_what_is_unknown() -> None:
    """Full metadata gives an unknown table its names, keys and signs; a definition that fits gives type texts."""
    full = event(INT, VARCHAR, BIGINT, names="a b c", key=(0,), unsigned=(True, False, False))
    assert texts(History(server()).view(at(4)).table(full, at(100))) == ["a* int unsigned", "b ", "c bigint"]
    present = server(t="CREATE TABLE t (a int(11) unsigned PRIMARY KEY, b varchar(99), c bigint, d int)")
    found = History(present).view(at(4)).table(full, at(100))
    assert texts(found) == ["a* int(11) unsigned", "b ", "c bigint"]
    assert [column.unsigned for column in found.columns] == [True, False, False]


def full_event(*columns: tuple[int, int, int], names: str, mariadb: bool = False) -> TableMap:
    """Return a table map with full metadata. columns: type code, metadata, and a collation, 0 for what is no text."""
    plain = event(*((code, meta) for code, meta, _ in columns), names=names)
    collations = tuple(collation for _, _, collation in columns if collation)
    return replace(plain, each_collation=collations, mariadb=mariadb)


@pytest.mark.parametrize("mariadb", [False, True])
def test_full_metadata_tells_the_types_of_a_table_that_nobody_knows(mariadb: bool) -> None:
    """Lengths, charsets, labels and shapes come from the event: BINARY(8) gets its padding, and an ENUM its labels."""
    texts_of = ((254, 0xFE08, 63), (254, 0xFE08, 33), (254, 0xEE3C, 45), (15, 80, 45), (15, 16, 63), (15, 20, 28))
    blobs = ((252, 1, 63), (252, 2, 8), (252, 3, 45), (252, 4, 63))
    shape = (255, 4, 63 if mariadb else 0)
    rest = ((254, 0xF701, 0), (254, 0xF801, 0), shape, shape, (246, 0x0C03, 0), (16, 0x0101, 0), (17, 3, 0), (18, 0, 0))
    found = full_event(*texts_of, *blobs, *rest, names="a b c d e f g h i j k l m n o p q r", mariadb=mariadb)
    found = replace(found, labels={10: ("x", "it's"), 11: ("y",)}, geometry_types=(1, 7))
    assert texts(History(server()).view(at(4)).table(found, at(100))) == [
        *("a binary(8)", "b char(2)", "c char(79)", "d varchar(20)", "e varbinary(16)", "f varchar(10)"),
        *("g tinyblob", "h text", "i mediumtext", "j longblob", "k enum('x','it''s')", "l set('y')", "m point"),
        *("n geometrycollection", "o decimal(12,3)", "p bit(9)", "q timestamp(3)", "r datetime"),
    ]


def test_compressed_columns_of_an_unknown_table() -> None:
    """MariaDB's type codes of compressed columns, whose metadata includes a header, tell the type with the charset."""
    found = full_event((141, 121, 45), (141, 31, 63), (140, 2, 63), (140, 2, 45), names="a b c d", mariadb=True)
    expected = ["a varchar(30)", "b varbinary(30)", "c blob", "d text"]
    assert texts(History(server()).view(at(4)).table(found, at(100))) == expected


def test_a_definition_of_another_time_does_not_make_texts_of_bytes() -> None:
    """The event's charset tells CHAR from BINARY and TEXT from BLOB, whatever the table is today."""
    now = server(t="CREATE TABLE t (a binary(8), b blob, c varbinary(40), d int(11))")
    found = full_event((254, 0xFE08, 8), (252, 2, 8), (15, 40, 8), (3, 0, 0), names="a b c e")
    assert texts(History(now).view(at(4)).table(found, at(100))) == ["a char(8)", "b text", "c varchar(40)", "e int"]
    view = History(now).view(at(4))
    view.apply(at(90), "s", "CREATE TABLE t (a binary(8), b blob, c varbinary(40), e int)")
    assert texts(view.table(found, at(100))) == ["a char(8)", "b text", "c varchar(40)", "e int"]


ADDRESSES = full_event((254, 0xFE10, 63), (254, 0xFE04, 63), names="a b", mariadb=True)


def test_addresses_of_an_unknown_table_are_refused() -> None:
    """MariaDB logs UUID, INET6 and INET4 as BINARY. If no definition is known, the error names columns and command."""
    refusal = (
        r"s\.t at bin\.000001:100 .* does not tell the types of a \(BINARY\(16\), INET6 or UUID\), b \(BINARY\(4\),"
        r" INET4\).*does not exist on the server any more\. Start this stream after the position \(canal-ha cursor"
    )
    with pytest.raises(TableUnknown, match=refusal):
        History(server()).view(at(4)).table(ADDRESSES, at(100))
    view = History(server(t="CREATE TABLE t (a uuid, b inet4)")).view(at(4))
    view.apply(at(110), "s", "ALTER TABLE t MODIFY a uuid")
    with pytest.raises(TableUnknown, match="current definition may be a later one"):
        view.table(ADDRESSES, at(100))
    mysql = replace(ADDRESSES, mariadb=False)
    assert texts(History(server()).view(at(4)).table(mysql, at(100))) == ["a binary(16)", "b binary(4)"]


def test_addresses_come_from_the_definition() -> None:
    """A statement tells the types, else the current definition if no statement follows; texts of today do not."""
    view = History(server(t="CREATE TABLE t (a inet6, b binary(4))")).view(at(4))
    assert texts(view.table(ADDRESSES, at(80))) == ["a inet6", "b binary(4)"]
    view.apply(at(90), "s", "ALTER TABLE t MODIFY a uuid, MODIFY b inet4")
    assert texts(view.table(ADDRESSES, at(100))) == ["a uuid", "b inet4"]
    assert texts(view.table(ADDRESSES, at(80))) == ["a inet6", "b binary(4)"]
    live = History(server(t="CREATE TABLE t (a inet6, b binary(4))"), live_texts=True).view(at(4))
    live.apply(at(90), "s", "CREATE TABLE t (a uuid, b inet4)")
    assert texts(live.table(ADDRESSES, at(100))) == ["a uuid", "b inet4"]


def test_labels_in_an_unknown_charset_come_from_a_definition() -> None:
    """An event whose labels cannot be decoded tells the column's name only; numbers are not delivered as labels."""
    enum = event((254, 0xF701), names="e")
    with pytest.raises(TableUnknown, match=r"types of e \(ENUM or SET with unknown labels\)"):
        History(server()).view(at(4)).table(enum, at(100))
    view = History(server(t="CREATE TABLE t (e enum('x'))")).view(at(4))
    assert texts(view.table(enum, at(100))) == ["e enum('x')"]


def test_a_row_without_names_behind_one_with_names_keeps_them() -> None:
    """The columns that an event with names shows hold until a statement changes the table, which is gone now."""
    view = History(server()).view(at(4))
    named = full_event((3, 0, 0), (15, 40, 8), names="a b")
    assert texts(view.table(named, at(100))) == ["a int", "b varchar(40)"]
    bare = replace(named, names=None)
    assert texts(view.table(bare, at(110))) == ["a int", "b varchar(40)"]
    view.apply(at(120), "s", "ALTER TABLE t ADD c int FIRST")
    assert texts(view.table(replace(event(INT, INT, VARCHAR), each_collation=(8,)), at(130)))[0] == "c int"
    view.apply(at(140), "s", "DROP TABLE t")
    with pytest.raises(TableUnknown):
        view.table(bare, at(150))


@pytest.mark.parametrize(
    ("mariadb", "shown", "names"),
    [
        (True, ((3, 0, 0), (17, 6, 0), (17, 6, 0)), "id row_start row_end"),
        (False, ((8, 0, 0), (3, 0, 0)), "my_row_id id"),
    ],
)
def test_columns_that_the_server_may_have_added_do_not_survive_a_statement(
    mariadb: bool, shown: tuple[tuple[int, int, int], ...], names: str
) -> None:
    """ADD COLUMN puts a new column before row_start of a versioned table, behind it if that is an ordinary column."""
    view = History(server()).view(at(4))
    named = full_event(*shown, names=names, mariadb=mariadb)
    assert [column.name for column in view.table(named, at(100)).columns] == names.split()
    assert [column.name for column in view.table(replace(named, names=None), at(110)).columns] == names.split()
    view.apply(at(120), "s", "ALTER TABLE t ADD c timestamp(6)")
    after = full_event(*shown, (17, 6, 0), names=f"{names} c", mariadb=mariadb)
    with pytest.raises(TableUnknown):
        view.table(replace(after, names=None), at(130))
    assert [column.name for column in view.table(after, at(130)).columns] == [*names.split(), "c"]


def test_what_a_statement_made_goes_before_what_an_event_showed() -> None:
    """Once the statements before a stream's start are read, a shown table is the one that they made."""
    history = History(server(), in_ranges=True)
    history.cover(at(200), at(300))
    late = history.view(at(200))
    named = full_event((3, 0, 0), (17, 6, 0), (17, 6, 0), names="id row_start row_end", mariadb=True)
    late.table(named, at(210))
    late.apply(at(220), "s", "ALTER TABLE t ADD c timestamp(6)")
    bare = replace(event(INT, (17, 6), (17, 6), (17, 6)), mariadb=True)
    with pytest.raises(TableUnknown):
        late.table(bare, at(230))
    early = history.view(at(4))
    early.apply(at(50), "s", "CREATE TABLE t (id int) WITH SYSTEM VERSIONING")
    history.cover(at(4), at(200))
    late.apply(at(220), "s", "ALTER TABLE t ADD c timestamp(6)")
    assert [column.name for column in late.table(bare, at(230)).columns] == ["id", "c", "row_start", "row_end"]


def test_labels_of_the_event_go_before_those_of_a_definition() -> None:
    """The present definition may have other labels than the table had when the row was written (FULL metadata)."""
    enum, flags = (254, 0xF701), (254, 0xF801)
    now = "CREATE TABLE `t` (`e` enum('tiny','small','large'), `f` set('z','x'), `g` enum(0x61,'b '))"
    labels = {0: ("small", "large"), 1: ("x", "it's"), 2: ("a", "b")}
    found = replace(event(enum, flags, enum, names="e f g"), labels=labels)
    view = History(server(t=now)).view(at(4))
    expected = ["e enum('small','large')", "f set('x','it''s')", "g enum(0x61,'b ')"]
    assert texts(view.table(found, at(100))) == expected
    assert texts(view.table(found, at(110))) == expected


def test_metadata_repairs_what_statements_left_open() -> None:
    """Full metadata corrects the letter case, signs, keys and nullability of columns that a statement defined."""
    view = History(server()).view(at(4))
    view.apply(at(90), "s", "CREATE TABLE t (A int, b bigint NOT NULL, c int unsigned)")
    full = event(INT, BIGINT, INT, names="a b c", key=(0,), unsigned=(False, True, False))
    found = view.table(full, at(100))
    assert texts(found) == ["a* int", "b bigint unsigned", "c int"]
    assert [column.nullable for column in found.columns] == [True, True, True]


def test_a_unique_key_in_place_of_a_primary_one_is_no_key() -> None:
    """A unique key that the event of a table without a primary key names marks no column as key, as in canal."""
    view = History(server()).view(at(4))
    view.apply(at(90), "s", "CREATE TABLE t (a int NOT NULL UNIQUE)")
    assert texts(view.table(event(INT, names="a", key=(0,)), at(100))) == ["a int"]


def test_hidden_columns_of_long_unique_keys() -> None:
    """The hash column that MariaDB logs for a unique key over a blob is hidden, with or without names in the event."""
    blob = (252, 2)
    for names in (None, "a DB_ROW_HASH_1"):
        view = History(server(t="CREATE TABLE t (a blob, UNIQUE KEY u (a) USING HASH)")).view(at(4))
        found = view.table(event(blob, BIGINT, names=names), at(50))
        assert [(column.name, column.hidden) for column in found.columns] == [("a", False), ("DB_ROW_HASH_1", True)]
        view.apply(at(90), "s", "ALTER TABLE t ADD b int")
        found = view.table(event(blob, INT, BIGINT, names=names and "a b DB_ROW_HASH_1"), at(100))
        assert [(column.name, column.hidden) for column in found.columns][1:] == [("b", False), ("DB_ROW_HASH_1", True)]
    for columns, code in (("a blob", blob), ("a int UNIQUE", INT)):
        view = History(server()).view(at(4))
        view.apply(at(90), "s", f"CREATE TABLE t ({columns})")
        with pytest.raises(TableUnknown):
            view.table(event(code, BIGINT), at(100))


def test_statements_that_contradict_the_event_lose() -> None:
    """A version that does not fit an event is replaced by the server's definition, from that position on only."""
    history = History(server(t="CREATE TABLE t (a bigint)"))
    view = history.view(at(4))
    view.apply(at(90), "s", "CREATE TABLE t (a int)")
    assert texts(view.table(event(BIGINT), at(200))) == ["a bigint"]
    assert texts(view.table(event(INT), at(100))) == ["a int"]


def test_an_event_with_fewer_columns_is_not_labelled_with_the_first_ones() -> None:
    """An unlogged DROP (sql_log_bin=0) may have taken any column: only a definition with as many counts."""
    view = History(server(t="CREATE TABLE t (a int, c int)")).view(at(4))
    view.apply(at(90), "s", "CREATE TABLE t (a int, b int, c int)")
    assert texts(view.table(event(INT, INT, INT), at(100))) == ["a int", "b int", "c int"]
    assert texts(view.table(event(INT, INT), at(110))) == ["a int", "c int"]
    view = History(server()).view(at(4))
    view.apply(at(90), "s", "CREATE TABLE t (a int, b int, c int)")
    with pytest.raises(TableUnknown):
        view.table(event(INT, INT), at(110))


def test_ordinary_columns_with_the_names_of_hidden_ones_keep_their_place() -> None:
    """row_start and row_end are MariaDB's own only in a system-versioned table."""
    view = History(server()).view(at(4))
    view.apply(at(90), "s", "CREATE TABLE t (id int, row_start int, row_end int, price bigint)")
    view.apply(at(100), "s", "ALTER TABLE t ADD seat int")
    found = view.table(event(INT, INT, INT, BIGINT, INT), at(110))
    assert texts(found) == ["id int", "row_start int", "row_end int", "price bigint", "seat int"]


def test_a_change_of_visibility_leaves_an_unknown_table_to_its_definition() -> None:
    """ALTER COLUMN ... SET INVISIBLE changes no column list."""
    view = History(server(t="CREATE TABLE t (a int)")).view(at(4))
    view.apply(at(90), "s", "ALTER TABLE t ALTER COLUMN a SET INVISIBLE")
    assert texts(view.table(event(INT), at(80))) == ["a int"]


def test_if_not_exists_of_an_unseen_table_proves_little() -> None:
    """After CREATE TABLE IF NOT EXISTS a server's definition that fits is preferred: the table may be older."""
    statement = "CREATE TABLE IF NOT EXISTS t (a int, b int)"
    view = History(server(t="CREATE TABLE t (x int, y int)")).view(at(4))
    view.apply(at(90), "s", statement)
    assert texts(view.table(event(INT, INT), at(100))) == ["x int", "y int"]
    view = History(server(t="CREATE TABLE t (x int, y int, z int)")).view(at(4))
    view.apply(at(90), "s", statement)
    assert texts(view.table(event(INT, INT), at(100))) == ["a int", "b int"]


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t DROP nowhere",
        "ALTER TABLE t ADD b int AFTER nowhere",
        "ALTER TABLE t ADD a int",
        "ALTER TABLE t 'x",
    ],
)
def test_what_does_not_fit_makes_uncertain(sql: str) -> None:
    """A statement that does not fit the known columns makes the table unknown from its position on."""
    history = History(server())
    view = history.view(at(4))
    view.apply(at(90), "s", "CREATE TABLE t (a int)")
    view.apply(at(100), "s", sql)
    assert texts(view.table(event(INT), at(95))) == ["a int"]
    with pytest.raises(TableUnknown):
        view.table(event(INT), at(110))


def test_unreadable_statements_about_other_things_touch_no_table() -> None:
    """A CREATE PROCEDURE whose body cannot be read leaves every table as it was."""
    view = History(server()).view(at(4))
    view.apply(at(90), "s", "CREATE TABLE t (a int)")
    view.apply(at(100), "s", "CREATE PROCEDURE p() BEGIN SELECT 'oops; END")
    assert texts(view.table(event(INT), at(110))) == ["a int"]


@pytest.mark.parametrize(
    ("sql", "changes"),
    [
        ("SAVEPOINT `a`", False),
        ("GRANT ALL ON s.* TO u", False),
        ("TRUNCATE t", False),
        ("ALTER TABLE t ADD b int", True),
        ("ALTER TABLE t ADD b unheard of here", True),
        ("RENAME TABLE t TO u", True),
        ("DROP DATABASE s", True),
    ],
)
def test_a_statement_tells_whether_it_changes_tables(sql: str, *, changes: bool) -> None:
    """A decoder asks for all its tables again after a change, and only then."""
    view = History(server()).view(at(4))
    view.apply(at(100), "s", "CREATE TABLE t (a int)")
    assert view.apply(at(200), "s", sql) is changes


def test_a_schema_that_was_replaced_has_no_tables() -> None:
    """MariaDB's CREATE OR REPLACE drops them. A table that comes under an old name has its own columns."""
    view = History(server()).view(at(4))
    view.apply(at(100), "s", "CREATE TABLE t (a int)")
    view.apply(at(200), "s", "CREATE OR REPLACE DATABASE s")
    view.apply(at(300), "s", "CREATE TABLE IF NOT EXISTS t (b int)")
    assert texts(view.table(event(INT), at(310))) == ["b int"]


def test_a_table_statement_without_a_readable_name_touches_all() -> None:
    """A table statement without a readable name puts every table in doubt, so that its definition is fetched again."""
    history = History(server(t="CREATE TABLE t (b bigint)"))
    view = history.view(at(4))
    view.apply(at(90), "s", "CREATE TABLE t (a int)")
    view.apply(at(100), "s", "ALTER TABLE 'oops")
    assert texts(view.table(event(BIGINT), at(110))) == ["b bigint"]


def test_a_later_stream_completes_what_an_earlier_one_could_not() -> None:
    """An ALTER of a table that was unknown to one stream is applied by a later stream that knows the table."""
    history = History(server())
    history.view(at(90)).apply(at(100), "s", "ALTER TABLE t ADD b bigint")
    view = history.view(at(4))
    view.apply(at(50), "s", "CREATE TABLE t (a int)")
    view.apply(at(100), "s", "ALTER TABLE t ADD b bigint")
    assert texts(view.table(event(INT, BIGINT), at(110))) == ["a int", "b bigint"]


def test_folded_names() -> None:
    """With lower_case_table_names, statement and event may differ in letter case."""
    view = History(server(), fold_names=True).view(at(4))
    view.apply(at(90), "S", "CREATE TABLE T (a int)")
    assert texts(view.table(event(INT), at(100))) == ["a int"]


def test_streams_share_it_from_several_threads() -> None:
    """Six threads that apply the same statements each get the right number of columns at every position."""
    history = History(server())
    failures: list[BaseException] = []

    def stream() -> None:
        view = history.view(at(4))
        try:
            view.apply(at(10), "s", "CREATE TABLE t (c0 int)")
            for number in range(1, 60):
                view.apply(at(10 * number + 10), "s", f"ALTER TABLE t ADD c{number} int")
                assert len(view.table(event(*[INT] * (number + 1)), at(10 * number + 15)).columns) == number + 1
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=stream) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_what_is_forgotten() -> None:
    """forget_before() keeps what holds from the position on, and removes tables that were dropped before it."""
    versions = Versions(fold_names=False)
    for number in range(50):
        versions.record(("s", f"gone{number}"), Version(at(number).order, Trust.KNOWN))
        versions.record(("s", f"gone{number}"), Version(at(number + 1).order, Trust.DROPPED))
        versions.record(("s", "t"), Version(at(number).order, Trust.KNOWN, cause=str(number)))
    versions.record(("s", "gone later"), Version(at(70).order, Trust.DROPPED))
    versions.forget_before(at(60).order)
    assert versions.keys() == [("s", "t"), ("s", "gone later")]
    held = versions.at(("s", "t"), at(60).order)
    assert held
    assert held.cause == "49"
    assert versions.before(("s", "t"), held.order) is None
