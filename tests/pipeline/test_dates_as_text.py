"""Dates as the source shows them, for targets that can hold more than a calendar has."""

from __future__ import annotations

import pytest

from canal_ha.model.position import LogPosition
from canal_ha.pipeline.latest import latest
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.reading import ChangeReader
from tests.spark.entries import ID, ddl, frames, rows

COLUMNS = (ID, ("d", "date", 91, False), ("m", "datetime(3)", 93, False), ("t", "timestamp", 93, False))
EXACT = (*COLUMNS[:3], ("t", "timestamp", 2014, False))
TEXTS = {"d": "0000-00-00", "m": "2024-00-10 01:02:03.004", "t": "0000-00-00 00:00:00"}


def portion(*entries: bytes, zone: str = "UTC") -> Portion:
    """Return a portion of these entries."""
    reader = ChangeReader(lambda schema, table: True, zone)
    return Portion("d", frames(entries), Progress("run", 1, LogPosition("bin.000001", 9), 0), 1, True, reader)


@pytest.mark.parametrize(("zone", "columns"), [("UTC", COLUMNS), ("UTC", EXACT), ("Europe/Berlin", EXACT)])
def test_dates_that_no_calendar_has_stay(zone: str, columns: tuple[tuple[str, str, int, bool], ...]) -> None:
    """Without the option they are NULL; both forms can be read of one portion."""
    made = portion(rows(10, "INSERT", [(None, {"id": "1", **TEXTS})], columns), zone=zone)
    [texts] = made.batches(dates_as_text=True)
    [values] = made.batches()
    assert {name: texts.rows.column(name)[0].as_py() for name in TEXTS} == TEXTS
    assert {values.rows.column(name)[0].as_py() for name in TEXTS} == {None}


def test_timestamps_of_another_zone_stay_instants() -> None:
    """Their texts are in the zone of the server's process."""
    row = {"id": "1", **TEXTS, "t": "2024-07-01 12:00:00"}
    [texts] = portion(rows(10, "INSERT", [(None, row)], COLUMNS), zone="Europe/Berlin").batches(dates_as_text=True)
    assert texts.rows.column("d")[0].as_py() == "0000-00-00"
    assert str(texts.rows.column("t")[0].as_py()) == "2024-07-01 10:00:00+00:00"


def test_texts_stay_texts_over_statements() -> None:
    """Of a column that a statement declares again, and of one that it adds."""
    wider = (*COLUMNS, ("a", "timestamp", 93, False))
    made = portion(
        rows(10, "INSERT", [(None, {"id": "1", **TEXTS})], COLUMNS),
        ddl(20, "ALTER TABLE t MODIFY d DATE NOT NULL, ADD a TIMESTAMP DEFAULT '2024-01-02 03:04:05'"),
        rows(30, "INSERT", [(None, {"id": "2", **TEXTS, "a": "0000-00-00 00:00:00"})], wider),
    )
    [changes] = latest(made.batches(dates_as_text=True), {})
    found = changes.upserts.to_pylist()
    assert [row["d"] for row in found] == ["0000-00-00"] * 2
    assert found[0]["a"].startswith("2024-01-02 03:04:05")
    assert found[1]["a"] == "0000-00-00 00:00:00"
