"""deploy/playground.sh: what a newcomer sees, and what is left after Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from lab.ports import listens
from tests.waiting import until

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
VENV = str(Path(sys.executable).parents[1])


@contextmanager
def playground(directory: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run the script as a terminal does, in a process group of its own; yield it with the lines that it prints."""
    process = subprocess.Popen(
        ["bash", "deploy/playground.sh", *arguments],
        cwd=ROOT,
        env={**os.environ, "CANAL_HA_VENV": VENV, "TMPDIR": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    lines: list[str] = []
    assert process.stdout is not None
    reading = Thread(target=lines.extend, args=(process.stdout,))
    reading.start()
    try:
        yield process, lines
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reading.join()


def has(lines: list[str], pattern: str) -> bool:
    """Whether a line has the pattern. Raises nothing while lines still arrive."""
    return any(re.search(pattern, line) for line in list(lines))


@pytest.mark.parametrize(
    "end", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly("the same with SIGINT"))]
)
def test_the_playground_prints_changed_rows_and_ends_everything_on_ctrl_c(tmp_path: Path, end: signal.Signals) -> None:
    """The client prints a change of each kind, the page answers; afterwards no port listens and no file is left."""
    with playground(tmp_path) as (process, lines):
        until(
            lambda: (
                process.poll() is not None
                or all(has(lines, kind) for kind in (r'"INSERT".*Grace', r'"UPDATE"', r'"DELETE"'))
            ),
            what="a change of each kind",
            seconds=90,
        )
        printed = "".join(lines)
        assert process.poll() is None, printed
        page = re.search(r"http://127.0.0.1:(\d+)/$", printed, re.MULTILINE)
        ports = {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", printed)}
        assert page, printed
        (command,) = re.findall("the status: *(.*)", printed)  # copied into a shell without the virtual environment
        status = subprocess.run(command, shell=True, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
        assert "example" in status.stdout, status.stderr
        assert "<html" in urllib.request.urlopen(page[0], timeout=20).read().decode()
        os.killpg(process.pid, end)
        assert process.wait(60) == 0, "".join(lines)
        assert not [port for port in ports if listens(port)]
        assert {each.name for each in tmp_path.iterdir()} <= {f"canal-ha-ports-{os.getuid()}"}  # an empty lock file
    assert has(lines, "everything has ended")


def test_a_playground_with_a_limit_ends_by_itself(tmp_path: Path) -> None:
    """`--seconds` is for scripts. A wrong option says which options there are."""
    with playground(tmp_path, "--seconds", "3") as (process, lines):
        assert process.wait(90) == 0, "".join(lines)
    assert has(lines, "everything has ended")
    with playground(tmp_path, "--rows", "3") as (process, lines):
        assert process.wait(30) == 2
    assert has(lines, "--seconds")
