"""What an account with a filter or rules of privacy sees of a snapshot, also on the data port."""

from __future__ import annotations

from dataclasses import replace

import pytest

from canal_ha.client.own_snapshot import no_rows
from canal_ha.model.privacy import ANYTHING, ColumnRules, Within
from canal_ha.model.snapshot import HIDDEN, SnapshotPhase, SnapshotState, read
from canal_ha.server.shown_snapshot import REASON_HIDDEN, told_within

STATE = SnapshotState(
    "s1",
    ("hr.salaries", "shop.orders"),
    {"shop.orders": "email = 'a17@x'"},
    phase=SnapshotPhase.FAILED,
    error="hr.salaries has no key",
    rows=7,
    left_out=("hr.people",),
)


@pytest.mark.parametrize(
    ("within", "tables", "error"),
    [
        (ANYTHING, STATE.tables, STATE.error),
        (Within(r"shop\..*"), (HIDDEN, "shop.orders"), REASON_HIDDEN),
        (Within(privacy=ColumnRules(mask=r"shop\.orders:email")), STATE.tables, REASON_HIDDEN),
    ],
)
def test_the_data_port_tells_no_more_of_a_snapshot_than_the_status(
    within: Within, tables: tuple[str, ...], error: str
) -> None:
    """It told every account the conditions and the names of all tables."""
    text = told_within(within, STATE.text)
    assert "a17" not in text
    told = read(text)
    assert told is not None
    assert (told.id, told.phase, told.rows) == ("s1", SnapshotPhase.FAILED, 7)
    assert (told.tables, told.error, told.where) == (tables, error, {})


def test_a_text_that_is_none_is_not_told() -> None:
    """Also if somebody damaged it."""
    assert (told_within(Within("a"), ""), told_within(Within("a"), "{")) == ("", "")


def test_a_consumer_names_no_hidden_tables_to_its_user() -> None:
    """It told an account with a filter that *** had come, and to read *** again."""
    told = read(told_within(Within(r"shop\..*"), STATE.text))
    assert told is not None
    text = no_rows("shop", 1001, ("*",), replace(told, phase=SnapshotPhase.DONE, table=2))
    assert "has got the rows of shop.orders already" in text
    assert "--table shop.orders" in text
