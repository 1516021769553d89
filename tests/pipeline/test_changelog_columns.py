"""Columns of the source with the names that a changelog in files and lakes has itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from canal_ha.errors import SinkRefused
from canal_ha.pipeline.targets import open_target
from tests.pipeline.driver import described
from tests.pipeline.lake_writer import options
from tests.pipeline.made import Writer
from tests.pipeline.test_latest import ID, change, row
from tests.spark.entries import ColumnSpec


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("name", ["_op", "_Position"])
def test_a_changelog_had_a_column_twice_or_an_error_without_the_table(kind: str, name: str, tmp_path: Path) -> None:
    """Parquet files were written that no reader of tables could open; Spark does not tell the case of a name."""
    given = options(tmp_path / "catalog") if kind == "iceberg" else {}
    target = open_target(described(tmp_path, {}, kind, "changelog", **given))
    target.check()
    target.progress("d")
    column: ColumnSpec = (name, "varchar(9)", 12, False)
    with pytest.raises(SinkRefused, match=rf"^{kind}: s\.t has a column {name}, .*give it another name"):
        Writer(target).commit(change(1, None, {**row(1), name: "insert"}, ID, column), offset=1)
    assert not list((tmp_path / kind).glob("s/**/*.parquet"))
