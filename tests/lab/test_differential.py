"""The differential finds what it is made to find: its judge, its script and its table."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import pytest

from canal_ha.client.rows import Row, Value, rows_of
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab.differential.dialect import Dialect, without
from lab.differential.forms import Outcome, Statement
from lab.differential.judge import judge
from lab.differential.script import script
from lab.differential.steps import Rows, Step
from lab.differential.tally import UNEXPLAINED, Tally, reason
from lab.differential.world import Column, Table, World

NAME = "shop", "t"
COLUMNS = Column("id", "int", "int", key=True), Column("a", "int", "int"), Column("b", "varchar", "varchar(9)")
EVENTS = {"INSERT": pb.INSERT, "UPDATE": pb.UPDATE, "DELETE": pb.DELETE}
INTEGER, VARCHAR = 4, 12


def delivered(
    kind: str, before: Mapping[str, Value] | None, after: Mapping[str, Value] | None, *, table: str = "t"
) -> Row:
    """Return a row change at offset 150 as a client decodes it."""
    row = pb.RowData()
    for side, values in ((row.beforeColumns, before), (row.afterColumns, after)):
        for name, value in (values or {}).items():
            number = isinstance(value, int)
            side.add(name=name, value=str(value), sqlType=INTEGER if number else VARCHAR, mysqlType="int")
    change = pb.RowChange(eventType=EVENTS[kind], rowDatas=[row])
    header = pb.Header(
        logfileName="mysql-bin.000001", logfileOffset=150, schemaName="shop", tableName=table, eventType=EVENTS[kind]
    )
    entry = pb.Entry(header=header, entryType=pb.ROWDATA, storeValue=change.SerializeToString())
    (found,) = rows_of([entry])
    return found


def step(before: list[Mapping[str, Value]], after: list[Mapping[str, Value]]) -> Step:
    """Return a step between the offsets 100 and 200 that changes the rows of shop.t."""
    rows = tuple(Rows(COLUMNS, tuple(tuple(row.items()) for row in side)) for side in (before, after))
    start, end = ("mysql-bin.000001", 100), ("mysql-bin.000001", 200)
    return Step(0, ("DML",), start, end, {NAME: (rows[0], rows[1])})


OLD: dict[str, Value] = {"id": 1, "a": 2, "b": "x"}
NEW: dict[str, Value] = {"id": 1, "a": 3, "b": "x"}


@pytest.mark.parametrize(
    ("wrong", "row"),
    [
        (False, delivered("UPDATE", OLD, NEW)),
        (True, delivered("UPDATE", OLD, {"id": 1, "a": 4, "b": "x"})),
        (True, delivered("UPDATE", {"id": 1, "a": 9, "b": "x"}, NEW)),
        (True, delivered("UPDATE", {"id": 1, "b": 2, "a": "x"}, {"id": 1, "b": 3, "a": "x"})),
        (True, delivered("UPDATE", OLD, {"id": 1, "b": "x", "a": 3})),
        (True, delivered("UPDATE", OLD, {"id": 1, "a": 3})),
        (True, delivered("INSERT", None, NEW)),
        (True, delivered("DELETE", OLD, None)),
    ],
)
def test_only_the_change_that_leads_to_the_selected_rows_is_right(wrong: bool, row: Row) -> None:
    """A wrong value, name, order of columns, side, or kind of change is a failure."""
    one = step([OLD], [NEW])
    verdict = judge([one], [row], one.start, one.end)
    assert bool(verdict.wrong) is wrong
    assert verdict.rows == 1


@pytest.mark.parametrize(
    ("wrong", "row"),
    [
        (False, delivered("UPDATE", {"id": 1}, {"a": 3})),
        (False, delivered("UPDATE", {"id": 1}, {"id": 1, "a": 3})),
        (False, delivered("UPDATE", OLD, NEW)),
        (True, delivered("UPDATE", {"id": 1}, {"a": 4})),
        (True, delivered("UPDATE", {"id": 2}, {"a": 3})),
        (True, delivered("UPDATE", {"id": 1}, {"b": "x"})),
        (True, delivered("UPDATE", {"id": 1}, {"c": 3})),
        (True, delivered("UPDATE", {"id": 1}, {"b": "x", "a": 3})),
    ],
)
def test_an_image_without_some_columns_changes_the_others(wrong: bool, row: Row) -> None:
    """Where images may be partial, what an image leaves out is the row's own; in FULL images nothing is left out."""
    one = step([OLD], [NEW])
    assert bool(judge([one], [row], one.start, one.end, partial=True).wrong) is wrong
    if row.before != OLD:
        assert judge([one], [row], one.start, one.end).wrong


def test_an_inserted_image_may_leave_out_defaults() -> None:
    """The columns that an INSERT does not name have any value, but each row is there once."""
    two = step([], [{"id": 1, "a": None, "b": "x"}, {"id": 2, "a": 5, "b": None}])
    given = [delivered("INSERT", None, {"id": 1, "b": "x"}), delivered("INSERT", None, {"id": 2, "a": 5})]
    assert not judge([two], given, two.start, two.end, partial=True).wrong
    assert judge([two], given[:1] * 2, two.start, two.end, partial=True).wrong
    assert judge([two], given[:1], two.start, two.end, partial=True).wrong


def test_a_missing_row_and_a_row_of_nobody_are_wrong() -> None:
    """A row that did not come fails, and so does a row of a table that the statement does not change."""
    one = step([OLD], [NEW])
    (missing,) = judge([one], [], one.start, one.end).wrong
    assert "SELECT says" in missing.text
    right, other = delivered("UPDATE", OLD, NEW), delivered("INSERT", None, OLD, table="other")
    (added,) = judge([one], [right, other], one.start, one.end).wrong
    assert added.table == ("shop", "other")


def test_steps_that_a_reader_has_not_read_are_not_compared() -> None:
    """A step counts if it lies completely between the positions."""
    one = step([OLD], [NEW])
    assert not judge([one], [], ("mysql-bin.000001", 150), one.end).wrong
    assert not judge([one], [], one.start, ("mysql-bin.000001", 199)).wrong


def told(seed: int) -> list[Statement]:
    """Return 300 statements for a server that takes each and always has the same two tables."""
    tables = tuple(Table(("s", name), COLUMNS) for name in ("t0", "t1"))
    world = World(("s", "s-b"), tables)
    conversation = script(seed, Dialect("mariadb", features=without()), world)
    statements = [next(conversation)]
    statements += (conversation.send(Outcome(world)) for _ in islice(iter(int, 1), 300))
    return statements


def test_the_same_seed_gives_the_same_statements() -> None:
    """A failure can be repeated from its seed."""
    assert told(7) == told(7)
    assert told(7) != told(8)
    assert {"ALTER", "gh-ost", "transaction", "temporary table"} <= {one.form for one in told(7)}


def test_features() -> None:
    """Each can be turned off by name, and an unknown name is an error."""
    assert "xa" in without("charsets")
    assert "xa" not in without("xa", "charsets")
    with pytest.raises(ValueError, match="unknown features nothing; there are hidden_names"):
        without("nothing")


def test_only_a_node_without_history_may_refuse() -> None:
    """A refusal in another situation, or for another reason, is a failure."""
    refusal = (
        "columns of s.t at mysql-bin.000001:4 are not known for certain: the event has 2 columns; no statement in the"
        " binlog since the stream's start describes the table; the table does not exist on the server any more."
    )
    assert reason("cold", refusal) == "unseen, gone from the server"
    assert reason("warm", refusal).startswith(UNEXPLAINED)
    assert reason("warm", refusal, excused=True) == "unseen, gone from the server"
    assert reason("cold", "the disk is full").startswith(UNEXPLAINED)


def test_the_table_has_all_counts() -> None:
    """Runs add up; each reason of a refusal has its number and its explanation."""
    total = Tally()
    for _ in range(2):
        one = Tally(statements=10, not_taken=1)
        one.situations["cold"].rows = 5
        one.situations["cold"].refused["unseen, different now"] = 2
        total.add(one)
    text = total.table("mysql")
    assert text.startswith("mysql: 20 statements, of which the server refused 2")
    assert "4 x unseen, different now" in text
    assert "the table was changed since" in text
