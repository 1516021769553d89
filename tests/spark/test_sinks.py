"""From the description of a pipeline to its sinks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from canal_ha.errors import OptionInvalid
from canal_ha.spark import pipeline, pipeline_file
from canal_ha.spark.sinks.console import Console
from canal_ha.spark.sinks.parquet import Parquet
from tests.spark.running import write_pipeline


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_check_of_a_parquet_sink_shuts_out_no_reader(tmp_path: Path, scheme: str) -> None:
    """Spools are for one user, but the target of a pipeline has the modes of the umask."""
    before = os.umask(0o022)
    try:
        Parquet(f"{scheme}{tmp_path}/lake/changes").check()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "lake", tmp_path / "lake" / "changes")] == [0o755] * 2


def test_an_unknown_sink_is_refused_and_does_not_print_rows(tmp_path: Path) -> None:
    """Only `console` gives the console: rows for another target must not appear on a screen."""
    file = write_pipeline(
        tmp_path / "p.toml",
        {"servers": "127.0.0.1:11111", "destination": "shop", "spoolDir": str(tmp_path / "spool")},
        [{"type": "console", "rows": 3}],
        tables=["shop.*"],
    )
    described = pipeline_file.load(file)
    assert [type(sink) for sink in pipeline.sinks_of(described)] == [Console]
    with pytest.raises(OptionInvalid, match=r"p\.toml: no sink has the type 'kafka'"):
        pipeline.sinks_of(described.with_sink("kafka", {}))
