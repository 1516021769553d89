"""The output of the demonstration."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence


def _bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text


def headline(text: str) -> None:
    """Print a headline."""
    print(f"\n{_bold(f'=== {text}')}", flush=True)


def say(text: str) -> None:
    """Print a line of explanation."""
    print(text, flush=True)


def statement(line: str) -> None:
    """Print a statement as it is sent to the database."""
    print(f"\n{_bold('sql> ' + ' '.join(line.split()))}", flush=True)


def command(line: Sequence[str], program: str) -> bool:
    """Run a command with visible output; return whether it succeeded. program: path of line[0]."""
    print(_bold(f"$ {' '.join(line)}"), flush=True)
    return subprocess.run([program, *line[1:]], check=False).returncode == 0


def figure(name: str, value: str | int, remark: str = "") -> None:
    """Print a line of the result."""
    text = f"{value:,}" if isinstance(value, int) else value
    print(f"{name:<34}{text:>10}{f'   {remark}' if remark else ''}", flush=True)
