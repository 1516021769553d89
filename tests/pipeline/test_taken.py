"""Which tables a pipeline takes, and what its log says of those that it leaves out."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from canal_ha.pipeline.reading import ChangeReader
from canal_ha.pipeline.taken import Taken
from tests.pipeline.driver import described
from tests.spark.entries import frames, insert


def test_changes_of_a_table_in_another_letter_case_were_left_out_silently(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The node sends them, because its filters match in any case. One line for each table; others are no mistake."""
    description = replace(described(tmp_path, {}, "parquet", "changelog"), tables=("s.Orders", "S.u*", "s.t"))
    reader = ChangeReader(Taken(description))
    names = ("orders", "users", "t", "other", "orders", "users")
    with caplog.at_level(logging.WARNING):
        entries = [insert(at, at, "x", table=name) for at, name in enumerate(names, 1)]
        found = list(reader.rows(frames(entries)))
    assert [row.table for row in found] == ["t"]
    lines = [record.getMessage() for record in caplog.records if "pipeline.letter_case" in record.getMessage()]
    assert [name for line in lines for name in ("s.orders", "s.users", "s.other") if name in line] == [
        "s.orders",
        "s.users",
    ]
