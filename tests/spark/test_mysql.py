"""The MySQL sink on a real server, without Spark: what it refuses, follows, and leaves out."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from canal_ha.errors import SinkRefused
from canal_ha.spark.entries import Layout
from canal_ha.spark.sinks.mysql import MySQL
from tests.real import SqlServer
from tests.spark.made import Made, row, statement

pytestmark = pytest.mark.real

COLUMNS = (("id", "int", 4), ("name", "varchar(3)", 12))
LAYOUT = Layout(COLUMNS, (0,), partial=False)
WIDER = Layout((*COLUMNS, ("note", "varchar(9)", 12)), (0,), partial=False)


class Copy:
    """A sink into a database of its own, and what is in it."""

    def __init__(self, server: SqlServer, database: str) -> None:
        self.sink = MySQL(server.address, "admin", "admin", "copy_{schema}", f"state_{database}")
        self._server = server
        self._database = database

    def put(self, op: str, *texts: str | None, layout: Layout = LAYOUT, seq: int = 0) -> Any:
        """A row."""
        return row(self._database, op, *texts, layout=layout, seq=seq)

    def statement(self, sql: str) -> Any:
        """A statement."""
        return statement(sql, self._database)

    def apply(self, batch_id: int, *changes: Any) -> None:
        """One micro-batch."""
        self.sink.apply(Made(batch_id, *changes))

    @property
    def rows(self) -> dict[int, dict[str, Any]]:
        """By id."""
        found = self._server.query(f"SELECT * FROM copy_{self._database}.t ORDER BY id")
        return {each.pop("id"): each for each in found}


@pytest.fixture(params=["mariadb", "mysql"])
def copy(request: pytest.FixtureRequest, database: str) -> Copy:
    """On both servers."""
    return Copy(request.getfixturevalue(request.param), database)


def test_a_value_is_never_cut(copy: Copy) -> None:
    """A value that is too long ends the query and leaves nothing; once the source's statement is known, it fits."""
    copy.apply(0, copy.put("insert", "1", "abc"))
    with pytest.raises(SinkRefused, match=r"batch 1: .*Data too long for column 'name'"):
        copy.apply(1, copy.put("insert", "2", "x"), copy.put("insert", "3", "abcd"))
    assert list(copy.rows) == [1]
    copy.apply(1, copy.statement("ALTER TABLE t MODIFY name VARCHAR(30)"), copy.put("insert", "3", "abcd"))
    assert copy.rows == {1: {"name": "abc"}, 3: {"name": "abcd"}}


def test_what_the_source_could_hold_the_copy_holds(copy: Copy) -> None:
    """Zero dates, days that do not exist, and the empty label of an ENUM that was given something else."""
    layout = Layout((("id", "int", 4), ("d", "date", 91), ("e", "enum('a','b')", 4)), (0,), partial=False)
    copy.apply(
        0,
        copy.put("insert", "1", "0000-00-00", "0", layout=layout),
        copy.put("insert", "2", "2024-02-31", "2", layout=layout),
        copy.put("insert", "3", "2024-00-10", None, layout=layout),
        copy.put("insert", "4", "2024-02-29", "1", layout=layout),
    )
    rows = copy.rows
    assert [each["e"] for each in rows.values()] == ["", "b", None, "a"]
    assert rows[4]["d"] == date(2024, 2, 29)
    assert [str(each["d"]) for each in rows.values()][1:3] == ["2024-02-31", "2024-00-10"]


def test_other_batches_of_the_same_changes_add_what_is_missing(copy: Copy) -> None:
    """A restored checkpoint cuts what the target has, and what it has not, into batches under numbers it has seen."""
    changes = [copy.put("insert", str(number), "x", seq=number) for number in range(1, 7)]
    for batch_id, part in enumerate((changes[:2], changes[2:4], changes[4:5])):
        copy.apply(batch_id, *part)
    for _ in range(2):
        copy.apply(1, *changes[2:5], copy.put("delete", "3", "x", seq=6), changes[5])
        assert list(copy.rows) == [1, 2, 4, 5, 6]


def test_a_column_that_comes_back_is_empty(copy: Copy) -> None:
    """What it held before it was dropped is of another column."""
    copy.apply(0, *(copy.put("insert", str(number), "x", "old", layout=WIDER) for number in (1, 2)))
    drop, add = (copy.statement(f"ALTER TABLE t {change}") for change in ("DROP COLUMN Note", "ADD note VARCHAR(9)"))
    copy.apply(1, drop, add, copy.put("update", "1", "x", "new", layout=WIDER))
    assert {key: each["note"] for key, each in copy.rows.items()} == {1: "new", 2: None}
