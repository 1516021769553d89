"""MySQL and MariaDB as targets: the process is killed between statements that change columns, and the rows."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

import pytest

from tests.pipeline.given import portion
from tests.pipeline.mysql_dying import dying
from tests.pipeline.sql_copies import SqlCopies
from tests.spark import entries as made

pytestmark = pytest.mark.real

Image = dict[str, str | None]


@pytest.fixture(params=["mysql", "mariadb"])
def copies(request: pytest.FixtureRequest, database: str) -> SqlCopies:
    """Return the copies on each server."""
    return SqlCopies(request.getfixturevalue(request.param), database)


def specs(names: str, key: str = "id") -> list[made.ColumnSpec]:
    """Return columns of one type, which nothing but their names tells apart."""
    return [(name, "int(11)", 4, name == key) for name in names.split()]


def row(offset: int, names: str, values: str, **more: Any) -> bytes:
    """Return the entry of a new row."""
    image: Image = dict(zip(names.split(), values.split(), strict=True))
    return made.rows(offset, "INSERT", [(None, image)], specs(names), **more)


def killed(copies: SqlCopies, mode: str, before: list[bytes], entries: list[bytes]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of `t` after a process was killed behind 0, 1, 2 and 3 statements, and another one went on."""
    for statements in range(4):
        copies.server.execute(*(f"DROP DATABASE IF EXISTS {name}" for name in (copies.place, copies.state)))
        target = copies.open(mode)
        target.check()
        target.commit(portion(0, 0, []))
        target.commit(portion(1, 10, before))
        copies.server.execute(f"ALTER TABLE {copies.table('t')} COMMENT = 'ours'")
        child = get_context("spawn").Process(target=dying, args=(copies.description(mode), entries, statements))
        child.start()
        child.join(60)
        assert child.exitcode == -signal.SIGKILL
        again = copies.open(mode)
        again.progress("d")
        again.commit(portion(2, 100, entries))
        yield copies.rows("t", order="id" if mode == "mirror" else "id, valid_position")
        shown = copies.query(f"SHOW TABLE STATUS FROM {copies.place} LIKE 't'")[0]["Comment"]
        assert shown.startswith("ours [canal-ha ")


@pytest.mark.parametrize("mode", ["mirror", "scd2"])
def test_names_that_swap_are_swapped_once_although_the_process_is_killed_behind_it(
    copies: SqlCopies, mode: str
) -> None:
    """Whatever statement it dies behind; rows from before and behind each swap keep their values."""
    schema = {"schema": copies.database}
    entries = [
        row(20, "id a b", "2 12 22", **schema),
        made.ddl(30, "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a, ADD c INT DEFAULT 7", **schema),
        row(40, "id b a c", "3 13 23 33", **schema),
        made.ddl(50, "ALTER TABLE t CHANGE b c INT, CHANGE c b INT", **schema),
        row(60, "id c a b", "4 14 24 34", **schema),
    ]
    for rows in killed(copies, mode, [row(10, "id a b", "1 11 21", **schema)], entries):
        found = [(each["id"], each["c"], each["a"], each["b"]) for each in rows]
        assert found == [(1, 11, 21, 7), (2, 12, 22, 7), (3, 13, 23, 33), (4, 14, 24, 34)]
