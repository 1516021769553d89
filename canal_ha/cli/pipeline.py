"""`canal-ha pipeline`: runs a pipeline on Spark, checks its parts, shows its progress."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from canal_ha.errors import SparkMissing
from canal_ha.spark import pipeline_file


@click.group()
def command() -> None:
    """Run a pipeline on Spark, check it, or show its progress. FILE: a pipeline file; see conf/pipeline/."""


_FILE = click.argument("file", type=click.Path(path_type=Path))


@command.command()
@_FILE
@click.option("--once", is_flag=True, help="Stop when every change written before the start is in the sinks.")
def run(file: Path, once: bool) -> None:
    """Run a pipeline until Ctrl-C or SIGTERM."""
    described = pipeline_file.load(file)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    pipeline = _room("pipeline")
    spark = pipeline.session(described)
    try:
        pipeline.run(spark, described, once=once)
    finally:
        spark.stop()


@command.command()
@_FILE
def check(file: Path) -> None:
    """Check every part without starting Spark. The exit code is 1 if one has a problem."""
    failed = False
    for finding in _room("inspection").check(pipeline_file.load(file)):
        failed |= bool(finding.problem)
        click.echo(f"{'FAIL' if finding.problem else 'ok':4}  {finding.part:12}  {finding.problem or finding.says}")
    sys.exit(1 if failed else 0)


@command.command()
@_FILE
def status(file: Path) -> None:
    """Show committed and waiting changes of each destination, without Spark. The exit code is 1 on a problem."""
    described = pipeline_file.load(file)
    failed = False
    for state in _room("inspection").status(described):
        failed |= bool(state.problem)
        click.echo(f"{described.name}: {state.destination}: {state.problem or state.says}")
        if state.manifest is not None:
            kept = sum(segment.size_bytes for segment in state.manifest.segments)
            newest = state.manifest.last or "nothing"
            count = len(state.manifest.segments)
            click.echo(f"  spool: {count} segments from {state.manifest.oldest} on, {kept:,} bytes, up to {newest}")
        if state.lag_s >= 0:
            click.echo(f"  newest committed change: {state.lag_s:.1f} s old")
    sys.exit(1 if failed else 0)


def _room(module: str) -> Any:
    """Import a module of canal_ha.spark that needs the extra `spark`. Raises SparkMissing."""
    try:
        return import_module(f"canal_ha.spark.{module}")
    except ImportError as error:
        raise SparkMissing(f"this needs Spark: pip install 'canal-ha[spark]' ({error})") from error
