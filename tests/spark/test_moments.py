"""TIMESTAMP texts of both forms of values in one micro-batch."""

from __future__ import annotations

import pytest

from canal_ha.spark.entries import UPDATE, EntryRows, RowLayout
from canal_ha.spark.moments import in_utc
from canal_ha.wire.proto.entry_protocol_pb2 import Header

LOCAL, UTC = 93, 2014


def change(code: int, *texts: str | None) -> EntryRows:
    """An UPDATE of a row whose columns are a DATETIME and a TIMESTAMP; every text is that of both columns."""
    layout = RowLayout((("d", "datetime(3)", LOCAL), ("t", "timestamp(3)", code)), (1,), partial=False)
    rows = [[text, text] for text in texts]
    return EntryRows(0, 0, Header(), UPDATE, layout, layout, rows, rows)


def test_a_row_of_an_older_node_and_one_of_a_newer_node_mean_the_same_moment() -> None:
    """The spool holds both after an upgrade. One column type of the newest row decides for the whole micro-batch."""
    old = in_utc(change(LOCAL, "2024-05-01 20:00:00.250"), "Asia/Shanghai")
    new = in_utc(change(UTC, "2024-05-01 12:00:00.250"), "Asia/Shanghai")
    assert old.after_layout.columns[1] == new.after_layout.columns[1] == ("t", "timestamp(3)", UTC)
    assert old.after[0][1] == old.before[0][1] == new.after[0][1] == "2024-05-01 12:00:00.250"
    assert old.after[0][0] == "2024-05-01 20:00:00.250"


@pytest.mark.parametrize("text", [None, "0000-00-00 00:00:00"])
def test_no_moment_stays_none(text: str | None) -> None:
    """NULL and the zero date have no time zone."""
    assert in_utc(change(LOCAL, text), "Asia/Shanghai").after == [[text, text]]
