"""Values of a column whose type ALTER TABLE changes, in copies that cannot ask the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from canal_ha.errors import SinkRefused
from tests.pipeline.made import Writer
from tests.pipeline.test_renamed_columns import kept, opened
from tests.spark import entries as made

Kind = tuple[str, int]
INT, BIGINT, DATE, TEXT = ("int(11)", 4), ("bigint(20)", -5), ("date", 91), ("varchar(30)", 12)
DATETIME, TIMESTAMP, DOUBLE = ("datetime", 93), ("timestamp", 93), ("double", 8)


def changed(directory: Path, lake: str, old: Kind, value: str, new: Kind, *, apart: bool) -> Any:
    """Return the value of an older row behind MODIFY. apart: the row is in an earlier portion."""
    writer = Writer(opened(lake, directory))
    row = made.rows(1, "INSERT", [(None, {"id": "1", "c": value})], (made.ID, ("c", *old, False)))
    alter = made.ddl(2, f"ALTER TABLE t MODIFY c {new[0]}")
    if apart:
        writer.commit(row, offset=1)
        writer.commit(alter, offset=2)
    else:
        writer.commit(row, alter, offset=2)
    return kept(lake, directory)[0]["c"]


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("lake", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        (("year(4)", 12), "2024", DATE),
        (INT, "20240102", DATE),
        (BIGINT, "20240102030405", DATETIME),
        (DATE, "2024-01-02", INT),
        (TIMESTAMP, "2024-01-02 03:04:05", BIGINT),
        (DATETIME, "2024-01-02 03:04:05", TIMESTAMP),
        (DATETIME, "2024-01-02 03:04:05", TEXT),
        (TIMESTAMP, "2024-01-02 03:04:05", TEXT),
        (DOUBLE, "1e20", TEXT),
        (("bit(1)", -7), "1", TEXT),
        (INT, "123", ("time", 92)),
        (INT, "1", ("enum('a','b')", 4)),
    ],
)
def test_values_that_only_the_source_can_convert_stop_the_pipeline(
    lake: str, old: Kind, value: str, new: Kind, apart: bool, tmp_path: Path
) -> None:
    """The year 2024 became the day 1975-07-18."""
    with pytest.raises(SinkRefused, match="again"):
        changed(tmp_path, lake, old, value, new, apart=apart)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize(
    ("old", "value", "new", "expected"),
    [
        (INT, "7", BIGINT, 7),
        (("bit(1)", -7), "1", INT, 1),
        (("bigint(20) unsigned", -5), "18446744073709551615", TEXT, "18446744073709551615"),
        (("decimal(10,2)", 3), "1.50", TEXT, "1.50"),
        (DATE, "2024-01-02", TEXT, "2024-01-02"),
        (("float", 7), "0.5", DOUBLE, 0.5),
        (TEXT, "12", INT, 12),
    ],
)
def test_values_that_are_the_same_everywhere_are_converted(
    old: Kind, value: str, new: Kind, expected: object, apart: bool, tmp_path: Path
) -> None:
    """By a copy in Delta."""
    assert changed(tmp_path, "delta", old, value, new, apart=apart) == expected
