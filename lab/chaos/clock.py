"""The wall clock of one process, which steps on command.

libfaketime cannot do it: with DONT_FAKE_MONOTONIC its clock_nanosleep fails, and every time.sleep() of Python with it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from lab.process import StartFailed, temporary_directory

_SOURCE = Path(__file__).with_name("clock.c")


class Clock:
    """A clock that is right until it steps. Monotonic clocks are not touched. file: holds the offset."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(bytes(8))

    def step(self, seconds: int) -> None:
        """Make the clock wrong by so many seconds, at once; 0: make it right."""
        with self._file.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables of the process. Raises StartFailed without a C compiler."""
        return {"LD_PRELOAD": str(_library()), "LAB_CLOCK": str(self._file)}


@cache
def _library() -> Path:
    made = temporary_directory("clock") / "clock.so"
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(made), str(_SOURCE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise StartFailed("gcc is missing; run: bash deploy/install.sh") from None
    if done.returncode:
        raise StartFailed(f"{_SOURCE} could not be compiled:\n{done.stderr}")
    return made
