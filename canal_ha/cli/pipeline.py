"""`canal-ha pipeline`: writes a pipeline's file, checks it, shows its plan, runs it, shows its progress.

A YAML file runs on Spark or on the embedded engine (docs/pipelines.md), a TOML file on Spark.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from canal_ha import logs
from canal_ha.errors import CanalError, OptionInvalid, SparkMissing
from canal_ha.model.excerpt import message

if TYPE_CHECKING:
    from canal_ha.pipeline.description import Description, Engine
    from canal_ha.pipeline.flow import FlowState
    from canal_ha.spark.pipeline_file import Pipeline

SHOW_S = 10.0  # between lines about a destination whose state stays the same
TOML = ".toml"
_SECTION = re.compile(rb"""^(?:\{\s*|\[+)?["']?(?:source|target|sink)["']?\s*[:\]]""", re.M)
_MOST_BYTES = 1 << 17  # that `list` reads of a file to find a section


@click.group()
def command() -> None:
    """Run a pipeline on Spark or in this process, check it, or show its progress.

    FILE: a pipeline file (docs/pipelines.md).
    """
    logs.to_stderr()
    click.get_current_context().call_on_close(logs.close)


def _say(text: str, *, err: bool = False) -> None:
    """Print a line. Names in it may be from outside."""
    click.echo(message(text), err=err)


_FILE = click.argument("file", type=click.Path(path_type=Path))
_ENGINE = click.option(
    "--engine", type=click.Choice(["spark", "embedded"]), help="Run on this engine, whatever the file says."
)


@command.command()
@click.argument("kind", metavar="[TYPE]", required=False)
@click.option("--file", type=click.Path(path_type=Path), help="Where to write it. Default: shop-TYPE.yaml.")
def init(kind: str | None, file: Path | None) -> None:
    """Write a commented pipeline file for a type of target; without a type, list the types."""
    schema, sample = _part("schema"), _part("sample")
    if kind is None:
        for name, each in schema.targets().items():
            _say(f"{name:12}  {each.get('title', '')}")
        return
    if kind not in schema.targets():
        raise OptionInvalid(f"no target has the type {kind!r}: use one of {', '.join(schema.targets())}")
    path = file or Path(f"shop-{kind}.yaml")
    try:
        with path.open("x") as out:
            out.write(sample.sample(kind))
    except FileExistsError:
        raise OptionInvalid(f"{path} exists already: choose another file with --file") from None
    except OSError as error:
        raise OptionInvalid(f"{path} cannot be written: {error.strerror}") from error
    _say(f"{path}: write your addresses into it; then run `canal-ha pipeline check {path}`")


@command.command()
def schema() -> None:
    """Print the JSON schema of pipeline files, for editors."""
    click.echo(json.dumps(_part("schema").joined(), indent=2, ensure_ascii=False))


@command.command()
@_FILE
@click.option("--once", is_flag=True, help="Stop when every change written before the start is in the target.")
@_ENGINE
def run(file: Path, once: bool, engine: Engine | None) -> None:
    """Run a pipeline until Ctrl-C or SIGTERM."""
    described = _described(file, engine)
    if described is not None and described.engine == "embedded":
        _say(f"{described.name}: engine: embedded ({described.why_engine})", err=True)
        shown = _Shown(described.name)
        with _part("state_lock").alone(described):
            made = _part("engine").PipelineEngine(described, reread=lambda: _described(file, engine))
            made.run(once=once, show=shown)
        shown.end()
        return
    on_spark, why = _on_spark(file, described)
    _say(f"{on_spark.name}: engine: spark ({why})", err=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    pipeline = _room("pipeline")
    spark = pipeline.session(on_spark)
    try:
        pipeline.run(spark, on_spark, once=once)
    finally:
        spark.stop()


@command.command()
@_FILE
@_ENGINE
def check(file: Path, engine: Engine | None) -> None:
    """Check every part without running the pipeline. The exit code is 1 if one has a problem."""
    described = _described(file, engine)
    if described is not None and described.engine == "embedded":
        findings: Iterable[Any] = _part("inspection").check(described)
    else:
        findings = _room("inspection").check(_on_spark(file, described)[0])
    failed = False
    for finding in findings:
        failed |= bool(finding.problem)
        state = "FAIL" if finding.problem else "warn" if finding.warns else "ok"
        _say(f"{state:4}  {finding.part:12}  {finding.problem or finding.says}")
    sys.exit(1 if failed else 0)


@command.command()
@_FILE
@_ENGINE
def plan(file: Path, engine: Engine | None) -> None:
    """Show what a pipeline would read and write, and where it would begin; write nothing."""
    described = _described(file, engine)
    if described is None:
        raise OptionInvalid(f"{file}: a TOML file has no plan: `canal-ha pipeline check` shows its parts")
    inspection, target = _part("inspection"), described.target
    _say(f"{described.name}: engine {described.engine} ({described.why_engine})")
    _say(f"target: {target.kind}, mode {target.mode}, columns: {target.evolve}")
    hides = any(given.get("to") in described.hidden for each in described.transforms for given in each.values())
    for source, place in inspection.placed(described):
        own = described.shown(source)
        there = own if place == source else "" if hides or own != source else place
        _say(f"table {own} -> {there or 'named by the transforms'}")
    for table, columns in described.keys.items():
        _say(f"key of {table}: {', '.join(described.shown(columns))}")
    for finding in inspection.unused_keys(described):
        _say(f"warning: {finding.part}: {finding.says}")
    for number, transform in enumerate(described.transforms, 1):
        [(kind, given)] = transform.items()
        shown = {key: "***" if key == "key" else described.shown(value) for key, value in given.items()}
        _say(f"transform {number}: {kind} {_part('sample').inline(shown)}")
    failed = False
    if described.engine == "spark":
        for state in _room("inspection").status(_on_spark(file, described)[0]):
            failed |= bool(state.problem)
            _say(f"{state.destination}: {state.problem or state.says}")
    else:
        for state in inspection.status(described):
            failed |= bool(state.problem)
            begins = inspection.start_of(described, state)
            _say(f"{state.destination}: " + (f"begins {begins}" if begins else f"{state.unread} unknown"))
            if state.problem:
                _say(f"{state.destination}: {state.problem}")
    sys.exit(1 if failed else 0)


@command.command()
@_FILE
@_ENGINE
def status(file: Path, engine: Engine | None) -> None:
    """Show what is committed of each destination. The exit code is 1 on a problem."""
    described = _described(file, engine, beside="\nA pipeline that runs goes on with the file as it was before")
    if described is not None and described.engine == "embedded":
        sys.exit(_embedded_status(described))
    on_spark, _ = _on_spark(file, described)
    failed = False
    for state in _room("inspection").status(on_spark):
        failed |= bool(state.problem)
        _say(f"{on_spark.name}: {state.destination}: {state.problem or state.says}")
        if state.manifest is not None:
            kept = sum(segment.size_bytes for segment in state.manifest.segments)
            newest = state.manifest.last or "nothing"
            count = len(state.manifest.segments)
            _say(f"  spool: {count} segments from {state.manifest.oldest} on, {kept:,} bytes, up to {newest}")
        if state.lag_s >= 0:
            _say(f"  newest committed change: {state.lag_s:.1f} s old")
    sys.exit(1 if failed else 0)


def _embedded_status(described: Description) -> int:
    refused = _part("reload").noted(described)
    failed = bool(refused)
    for line in refused.splitlines():
        _say(f"{described.name}: alarm: the running pipeline did not take the file over: {line}")
    note = _part("run_note").read(described.state)
    if note is not None:
        failed |= bool(note.problem)
        _say(f"{described.name}: {note.says}")
        for destination, snapshot in note.snapshots.items():
            _say(f"{described.name}: {destination}: snapshot {snapshot}")
    for state in _part("inspection").status(described):
        failed |= bool(state.problem)
        _say(f"{described.name}: {state.destination}: {state.says}")
        if state.problem:
            _say(f"  problem: {state.problem}")
        if state.lag_s >= 0:
            _say(f"  newest committed change: {state.lag_s:.1f} s old")
        if state.end is not None:
            _say(f"  end of the source's binlog: {state.end}")
        if state.cursor is not None:
            _say(f"  cursor of the client id: {state.cursor}")
    return 1 if failed else 0


@command.command("list")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False, exists=True), default=Path())
def list_files(directory: Path) -> None:
    """List the pipeline files of a directory. The exit code is 1 if one cannot be used.

    A YAML or TOML file is a pipeline's if it has source, target or sink at its left margin.
    """
    failed = False
    for file in sorted(path for path in directory.iterdir() if path.suffix in (".yaml", ".yml", TOML)):
        try:
            if not _is_pipeline(file):
                _say(f"{'-':20}  not a pipeline: {file}")
                continue
            described = _described(file, None)
            if described is None:
                old = _room("pipeline_file").load(file)
                engine, name, kinds, tables = "spark", old.name, ", ".join(kind for kind, _ in old.sinks), old.tables
            else:
                target = described.target
                engine, name, kinds = described.engine, described.name, f"{target.kind} ({target.mode})"
                tables = described.shown(described.tables)
            _say(f"{name:20}  {engine:8}  {kinds:24}  {', '.join(tables)}  {file}")
        except CanalError as error:
            failed = True
            first, *_ = str(error).splitlines()
            _say(f"{'FAIL':20}  {first}")
    sys.exit(1 if failed else 0)


def _is_pipeline(file: Path) -> bool:
    """Return whether a file has a section of a pipeline, also if it has mistakes. Raises OptionInvalid."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # a pipe would wait for its writer
            return False
        with file.open("rb") as content:
            return _SECTION.search(content.read(_MOST_BYTES)) is not None
    except OSError as error:
        raise OptionInvalid(f"{file} cannot be read: {error.strerror}") from error


class _Shown:
    """Prints a line about a destination when something happens, at most every SHOW_S while it works."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._printed: dict[str, tuple[float, FlowState]] = {}
        self._newest: list[FlowState] = []

    def __call__(self, states: list[FlowState]) -> None:
        """Show the states now."""
        self._newest = states
        for state in states:
            at, before = self._printed.get(state.destination, (0.0, None))
            news = before is None or (state.waiting != before.waiting)
            moved = before is not None and (state.commits, state.snapshot) != (before.commits, before.snapshot)
            if news or (moved and self._clock() - at >= SHOW_S):
                self._print(state)

    def end(self) -> None:
        """Show what was not shown yet."""
        for state in self._newest:
            if self._printed[state.destination][1] != state:
                self._print(state)

    def _print(self, state: FlowState) -> None:
        lag = f", {state.lag_s:.1f} s behind" if state.lag_s > 0 else ""
        place = f" up to {state.progress.last}" if state.progress is not None and state.progress.seq else ""
        snapshot = f"; snapshot {state.snapshot}" if state.snapshot else ""
        snapshot += ": its other rows are not in the target, resume it and run again" if snapshot and state.done else ""
        waits = f"; waits: {state.waiting}" if state.waiting else ""
        done = f"{state.rows:,} rows in {state.commits} commits"
        _say(f"{self._name}: {state.destination}: {done}{place}{lag}{snapshot}{waits}", err=True)
        self._printed[state.destination] = (self._clock(), state)


def _described(file: Path, engine: Engine | None, *, beside: str = "") -> Description | None:
    """Read a YAML file; return None for a TOML file. Raises OptionInvalid. beside: text behind mistakes of the file."""
    if file.suffix == TOML:
        if engine == "embedded":
            raise OptionInvalid(f"{file}: a TOML file runs on Spark; `canal-ha pipeline init` writes a YAML file")
        return None
    load = _part("description").load
    try:
        described: Description = load(file, engine)
    except OptionInvalid as error:
        raise OptionInvalid(f"{error}{beside}") from error
    return described


def _on_spark(file: Path, described: Description | None) -> tuple[Pipeline, str]:
    """Return what Spark runs, and why it is Spark. Raises OptionInvalid."""
    files = _room("pipeline_file")
    if described is None:
        return files.load(file), "the file is TOML"
    return files.of_description(described), described.why_engine


def _part(module: str) -> Any:
    """Import a module of canal_ha.pipeline that needs the extra `pipeline`. Raises OptionInvalid."""
    try:
        return import_module(f"canal_ha.pipeline.{module}")
    except ModuleNotFoundError as error:
        raise OptionInvalid(
            f"pipelines in YAML need more packages: pip install 'canal-ha[pipeline]' ({error})"
        ) from error


def _room(module: str) -> Any:
    """Import a module of canal_ha.spark that needs the extra `spark`. Raises SparkMissing."""
    try:
        return import_module(f"canal_ha.spark.{module}")
    except ImportError as error:
        raise SparkMissing(f"this needs Spark: pip install 'canal-ha[spark]' ({error})") from error
