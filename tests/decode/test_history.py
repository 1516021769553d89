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
    assert texts(History(server()).view(at(4)).table(full, at(100))) == ["a* ", "b ", "c "]
    present = server(t="CREATE TABLE t (a int(11) unsigned PRIMARY KEY, b varchar(99), c bigint, d int)")
    found = History(present).view(at(4)).table(full, at(100))
    assert texts(found) == ["a* int(11) unsigned", "b ", "c bigint"]
    assert [column.unsigned for column in found.columns] == [True, False, False]


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
