"""The command line as a whole: help, unknown commands, version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from canal_ha.cli.main import COMMANDS, group, main
from canal_ha.version import VERSION

PROGRAM = str(Path(sys.executable).with_name("canal-ha"))


def test_help_names_every_command() -> None:
    """--help and -h list every command."""
    for option in ("--help", "-h"):
        text = CliRunner().invoke(group, [option]).output
        assert all(name in text for name in COMMANDS)


@pytest.mark.parametrize("name", ["server", "status", "version"])
def test_every_command_is_there(name: str) -> None:
    """Each name of the table has a module, and a help text that begins as in the table."""
    result = CliRunner().invoke(group, [name, "--help"])
    assert result.exit_code == 0
    assert " ".join(result.output.split()).count(COMMANDS[name].rstrip(".")[:30]) == 1


def test_the_list_of_commands_says_what_destination_can_do() -> None:
    """Its line names every command that changes one destination."""
    placements = group.get_command(click.Context(group), "destination")
    assert isinstance(placements, click.Group)
    changes = {*placements.commands} - {"list", "rebalance"}
    assert changes <= {*re.findall("[a-z]+", COMMANDS["destination"])}


def test_the_version_is_an_option_too() -> None:
    """`canal-ha --version` was an error."""
    assert CliRunner().invoke(group, ["--version"], prog_name="canal-ha").output == f"canal-ha {VERSION}\n"


def test_an_unknown_command() -> None:
    """An unknown command is an error that names it."""
    result = CliRunner().invoke(group, ["frobnicate"])
    assert result.exit_code == 2
    assert "No such command 'frobnicate'" in result.output


def test_help_is_quick() -> None:
    """`canal-ha --help` takes less than 200 ms of processor time, because it imports nothing of the node."""
    times = []
    for _ in range(3):
        before = os.times()
        subprocess.run([PROGRAM, "--help"], check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(times) < 0.2


def test_version_loads_no_networking() -> None:
    """`canal-ha version` names version, kernel, Python and platform without Twisted, kazoo or the MySQL driver."""
    code = (
        "import sys; sys.argv[1:] = ['version']\n"
        "from canal_ha.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.exit(any(name in sys.modules for name in ('twisted', 'kazoo', 'pymysql', 'structlog', 'rich')))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    lines = result.stdout.splitlines()
    assert lines[0] == f"canal-ha {VERSION}"
    assert lines[1].split() in (["kernel", "compiled"], ["kernel", "interpreted"])
    assert lines[2].startswith(f"Python   {sys.version_info.major}.{sys.version_info.minor}")
    assert lines[3].startswith("platform ")


def test_a_name_in_an_error_cannot_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has escapes. The exit code stays."""
    monkeypatch.setattr(sys, "argv", ["canal-ha", "pipeline", "plan", "a\x1b[2J.yaml"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert "a\\x1b[2J.yaml cannot be read" in capsys.readouterr().err


def test_an_argument_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    """A condition of a snapshot with such a byte reached the cursors. A file may have such a name."""
    start = ["snapshot", "start", "--destination", "example", "--table", "shop.orders", "--where"]
    asked: list[str | bytes] = [PROGRAM, *start, b"shop.orders=v = 'M\xfcller'"]
    ended = subprocess.run(asked, capture_output=True, env={**os.environ, "PYTHONUTF8": "1"}, timeout=60)
    assert ended.returncode == 1
    assert b"is no UTF-8" in ended.stderr
    file = os.fsencode(tmp_path) + b"/\xfc.yaml"
    with open(file, "wb"):
        pass
    ended = subprocess.run([PROGRAM, "pipeline", "plan", file], capture_output=True, timeout=60)
    assert b"is no UTF-8" not in ended.stderr
