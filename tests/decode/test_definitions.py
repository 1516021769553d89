"""Definitions of tables: shared where columns agree, and parsed when somebody asks."""

from __future__ import annotations

import pytest

from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import Statement
from canal_ha.decode.history import definitions
from canal_ha.decode.history.definitions import columns_of, definition_of, table_of
from canal_ha.decode.history.history import History
from canal_ha.decode.history.ranges import edge
from canal_ha.decode.history.store import TableSnapshot
from canal_ha.decode.history.versions import Trust, Versions
from canal_ha.model.position import LogPosition

SHOWN = (
    "CREATE TABLE `{name}` (\n  `id` int NOT NULL AUTO_INCREMENT,\n  `a` varchar(64) DEFAULT ') AUTO_INCREMENT=5',\n"
    "  PRIMARY KEY (`id`)\n) ENGINE=InnoDB{number} DEFAULT CHARSET=utf8mb4"
)
KEY = ("s", "t")


def at(offset: int) -> LogPosition:
    """The edge of a position."""
    return edge(LogPosition("bin.000001", offset))


def test_tables_that_differ_in_name_and_next_number_have_one_definition() -> None:
    """So ten thousand tables of one shape are parsed once, and again only when their columns differ."""
    one = SHOWN.format(name="one", number="")
    other = SHOWN.format(name="oth``er", number=" AUTO_INCREMENT=17")
    assert definition_of(one) == definition_of(other) == definition_of(definition_of(other))
    assert "') AUTO_INCREMENT=5'" in definition_of(one)
    assert [column.name for column in columns_of(definition_of(other))] == ["id", "a"]
    assert columns_of(definition_of(one)) == columns_of(one)
    assert definition_of(one) != definition_of(one.replace("varchar(64)", "varchar(65)"))


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        (SHOWN.format(name="a ``b", number=""), "a `b"),
        ("create table s.t (a int)", "t"),
        ("CREATE TABLE `s`.`t` (a int)", "t"),
        ("DROP TABLE t", None),
        ("CREATE TABLE (", None),
    ],
)
def test_the_table_that_a_statement_creates(sql: str, table: str | None) -> None:
    """As SHOW CREATE TABLE and dumps of other programs spell it."""
    assert table_of(sql) == table


def test_a_snapshot_is_parsed_table_by_table_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node takes over with ten thousand tables in fifteen snapshots: it serves before it has parsed them."""
    definitions.kept.cache_clear()
    parsed: list[str] = []

    def counted(sql: str) -> Statement | None:
        parsed.append(sql)
        return read(sql)

    monkeypatch.setattr(definitions, "read", counted)
    history = History(lambda schema, table: None)
    tables = {("s", f"t{number}"): f"CREATE TABLE t (c{number} int)" for number in range(100)}
    history.restore((), [TableSnapshot(at(100 * day), tables, frozenset()) for day in range(15)])
    view = history.view(at(4))
    assert parsed == []
    view.apply(at(2000), "s", "ALTER TABLE t7 ADD b int")
    assert parsed == ["CREATE TABLE t (c7 int)"]
    view.apply(at(2010), "s", "DROP DATABASE s")
    history.forget_before(at(2005))
    assert parsed == ["CREATE TABLE t (c7 int)"]


def test_an_unread_definition_holds_from_its_snapshot_on() -> None:
    """Also where a place to forget lies behind the snapshot; an unreadable one leaves the one before it."""
    versions = Versions(fold_names=False)
    for offset, sql in ((100, "CREATE TABLE t (a int)"), (200, "CREATE TABLE t (b int)"), (300, "CREATE TABLE t (c d")):
        versions.observe(KEY, at(offset).order, sql, None)
    versions.forget_before(at(150).order)
    assert versions.before(KEY, at(150).order) is None
    seen = [versions.at(KEY, at(offset).order) for offset in (150, 250, 350)]
    assert [version and version.columns[0].name for version in seen] == ["a", "b", "b"]
    assert versions.keys() == [KEY]


def test_a_definition_seen_again_counts_if_something_may_lie_between() -> None:
    """A gap, or a statement whose effect is unknown: the later snapshot tells what holds behind it."""
    history = History(lambda schema, table: None, in_ranges=True)
    history.cover(at(100), at(200))
    history.cover(at(300), at(600))
    snapshot = {KEY: "CREATE TABLE t (a int)"}
    history.restore((), [TableSnapshot(at(offset), snapshot) for offset in (150, 350)])
    history.view(at(400)).apply(at(400), "s", "ALTER TABLE t ADD COLUMN (a")
    history.restore((), [TableSnapshot(at(500), snapshot)])
    versions = history._versions
    found = [versions.at(KEY, at(offset).order, history._floor(at(offset).order)) for offset in (150, 360, 450, 550)]
    assert [version and version.trust for version in found] == [
        Trust.KNOWN,
        Trust.KNOWN,
        Trust.UNCERTAIN,
        Trust.KNOWN,
    ]
