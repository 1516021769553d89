"""Drivers in their own processes, and the files of their pipelines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.process import spawn
from tests.spark.archive import jvm_options
from tests.spark.crashing import CRASH_AT, session_members

ROOT = Path(__file__).resolve().parents[2]


class Driver:
    """One driver. All processes that it started end with it."""

    def __init__(self, file: Path, *, once: bool = False, crash_at: str = "", log: Path) -> None:
        self.log = log
        command = [sys.executable, "-m", "tests.spark.driver", str(file), *(["--once"] if once else [])]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), CRASH_AT: crash_at}
        with log.open("ab") as output:
            self.process = spawn(
                command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    def wait(self, timeout_s: float) -> int:
        """Return the exit code. Raises AssertionError with the log's end after `timeout_s`."""
        try:
            return int(self.process.wait(timeout_s))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver still runs after {timeout_s} s\n{self.tail()}") from None

    def kill(self) -> None:
        """Send SIGKILL to the whole session."""
        for process in session_members(self.process.pid):
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def tail(self) -> str:
        """Return the end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def write_pipeline(
    file: Path,
    source: Mapping[str, Any],
    sinks: Sequence[Mapping[str, Any]],
    *,
    tables: Sequence[str],
    master: str = "local[1]",
) -> Path:
    """Write a pipeline's file, with its checkpoint beside it, and return the path."""
    lines = [
        'name = "test"',
        f'checkpoint = "{file.parent}/checkpoint"',
        f"tables = [{', '.join(map(toml, tables))}]",
        "[source]",
        *(f"{key} = {toml(value)}" for key, value in source.items()),
        "[spark]",
        f'master = "{master}"',
        f'"spark.driver.extraJavaOptions" = "{jvm_options()}"',
        f'"spark.executor.extraJavaOptions" = "{jvm_options()}"',
        '"spark.driver.memory" = "700m"',
    ]
    for sink in sinks:
        lines += ["[[sink]]", *(f"{key} = {toml(value)}" for key, value in sink.items())]
    file.write_text("\n".join(lines) + "\n")
    return file


def toml(value: Any) -> str:
    """Return a value in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f'"{value}"'
