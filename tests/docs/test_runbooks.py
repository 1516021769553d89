"""The runbooks name each alarm, and only commands, metrics and log events that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from canal_ha.alarms.notice import RUNBOOKS
from canal_ha.cli.main import group
from docs.generate import events, metrics

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/runbooks").glob("*.md"))
BLOCK = re.compile("^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def words_of(command: str) -> list[str]:
    """Return what follows `canal-ha`, up to a comment or a pipe."""
    return shlex.split(command.split(" | ")[0], comments=True)[1:]


def found(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that is meant, and its arguments."""
    command: click.Command = group
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        inner = command.get_command(click.Context(command), name)
        assert inner is not None, f"canal-ha has no command {name}"
        command = inner
    return command, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_runbook_parse(page: Path) -> None:
    """Those to copy parse as a whole. Of those in a sentence, which can be abbreviated, the options exist."""
    text = page.read_text()
    for line in "".join(BLOCK.findall(text)).splitlines():
        if line.startswith("canal-ha "):
            command, arguments = found(words_of(line))
            if "--help" not in arguments:
                command.make_context(line, arguments)
    for line in re.findall("`(canal-ha [^`]*)`", text):
        command, arguments = found(words_of(line))
        known = {name for parameter in command.params for name in parameter.opts}
        assert {each for each in arguments if each.startswith("--")} <= known, line


@pytest.mark.parametrize(("alarm", "page"), RUNBOOKS.items())
def test_the_runbook_of_an_alarm_names_it(alarm: str, page: str) -> None:
    """Who comes from a notice finds its word there."""
    assert f"`{alarm.partition('.')[2]}`" in (ROOT / f"docs/runbooks/{page}.md").read_text()


def test_metrics_of_the_runbooks_exist() -> None:
    """A name that nobody exports would show nothing, and so look well."""
    named = {name for page in PAGES for name in re.findall(r"\bcanal_\w+", page.read_text())}
    assert named - {"canal_ha"} <= {family.name for family in metrics.families()}


def test_log_events_of_the_runbooks_exist() -> None:
    """To grep for another one finds nothing, and so looks well."""
    known = {each.name for each in events.collect()}
    families = {name.partition(".")[0] for name in known} - {"canal"}
    text = "".join(page.read_text() for page in PAGES)
    named = {name for name in re.findall(r"`([a-z]+\.[a-z_]+)`", text) if name.partition(".")[0] in families}
    assert {"tls.refused", "scan.refused"} <= named <= known
    assert set(re.findall(r"grep '?(\w+)\\?\.", text)) <= families
