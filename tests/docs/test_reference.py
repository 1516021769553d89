"""The generated reference is complete: it has a line for each entry of the code's own registries."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import get_args

import click
import pytest

from canal_ha import errors
from canal_ha.cli import pipeline
from canal_ha.cli.main import COMMANDS
from canal_ha.config.keys import KEYS
from canal_ha.pipeline import schema
from canal_ha.pipeline.description import Evolve, Mode
from docs.generate import PAGES, commands, configuration, events, metrics, pipelines, status
from docs.generate.markdown import prose, table

ROOT = Path(__file__).parents[2]
MODES, POLICIES = get_args(Mode), get_args(Evolve)
COMMANDS_OF = tuple(pipeline.command.commands)


def lines(page: str) -> list[str]:
    """Return the first cells of all tables of a page, without heads."""
    rows = page.splitlines()
    body = [row for _, row in pairwise(rows) if row.startswith("| ") and not row.startswith("| ---")]
    heads = {row for row, below in pairwise(rows) if below.startswith("| ---")}
    return [re.split(r"(?<!\\)\|", row)[1].strip() for row in body if row not in heads]


def names(page: str) -> list[str]:
    """Return the first cells without markup."""
    return [re.sub(r"^`([^` ]+).*", r"\1", cell) for cell in lines(page)]


def test_every_key_is_in_the_reference() -> None:
    """Each key of the table that parses the files has one line."""
    found = names(PAGES["configuration"]())
    assert sorted(found) == sorted(key.name for key in KEYS)


def test_our_own_keys_are_told_from_canals() -> None:
    """The files in conf/ mark the keys that canal does not have. canal's stock files have none of them."""
    own = configuration.own_keys()
    stock = "".join(path.read_text() for path in (ROOT / "tests/config/stock").rglob("*.properties"))
    assert "canal.max.frame.bytes" in own
    assert "canal.port" not in own
    assert own <= {key.name for key in KEYS}
    assert not [name for name in own if re.search(rf"^#? *{re.escape(name)} *=", stock, re.MULTILINE)]


def test_every_command_and_option_is_in_the_reference() -> None:
    """Each command has a section, and each of its options a line, as click has them."""
    page = PAGES["commands"]()
    shown = dict(commands.commands())
    assert {name.split()[1] for name in shown} == set(COMMANDS)
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == list(shown)
    assert len(lines(page)) == sum(len(command.params) for command in shown.values())
    assert not [name for name, command in shown.items() if isinstance(command, click.Group)]


def test_every_error_is_in_the_reference() -> None:
    """Each class of canal_ha/errors.py has a line with its docstring."""
    tree = ast.parse((ROOT / "canal_ha/errors.py").read_text())
    written = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    page = PAGES["errors"]()
    assert names(page) == written
    assert prose(errors.Fenced.__doc__ or "") in page


def test_every_metric_is_in_the_reference() -> None:
    """Each family of metrics in the collector's code has a line."""
    text = (ROOT / "canal_ha/server/metrics.py").read_text()
    literal = set(re.findall(r'Family\(\s*"(canal_\w+)"', text))
    row = r'^    \(\s*"(\w+)",\s*"[^"]+",\s*lambda {}:'
    counters = {f"canal_instance_{name}" for name in re.findall(row.format("streams"), text, re.MULTILINE)}
    gauges = {f"canal_stream_{name}" for name in re.findall(row.format("stream"), text, re.MULTILINE)}
    found = names(PAGES["metrics"]())
    assert len(found) == len(set(found))
    assert set(found) == literal | counters | gauges
    assert len(counters) == 9
    assert len(gauges) == 9
    assert all(family.samples and family.documentation for family in metrics.families())


def test_every_log_event_is_in_the_reference() -> None:
    """Each call that writes a log line is found: no event name in the code is missing."""
    found = {event.name for event in events.collect()}
    assert names(PAGES["log events"]()) == sorted(found)
    written = set()
    for path in (ROOT / "canal_ha").rglob("*.py"):
        text = path.read_text()
        written |= set(re.findall(r'(?:\blog|_log|LOG|tell|write)(?:\.\w+)?\(\s*"([a-z]+\.[a-z_]+)"', text))
        written |= set(re.findall(r'\.event\([^"]*?"([a-z]+\.[a-z_]+)"', text))
    assert len(written) > 70
    assert written <= found
    assert {"alarm.lag", "alarm.lag_over", "scan.refused", "scan.refused_over"} <= found


def test_alarms_are_told_from_news() -> None:
    """An event has the level that the code gives it, and is marked if it is an alarm."""
    by_name = {event.name: event for event in events.collect()}
    assert by_name["source.lost"].alarm
    assert by_name["running.instance_failed"].level == "ERROR"
    assert not by_name["running.claimed"].alarm
    assert by_name["running.claimed"].keys == ("destination", "node", "epoch", "cursors_put_back")
    assert by_name["alarm.lag"].level == "WARN"
    assert by_name["alarm.lag_over"].level == "INFO"
    assert by_name["stream.moved"].level == "INFO or WARN"


def test_an_event_whose_name_is_made_up_at_run_time_is_refused() -> None:
    """A new family of events must be listed, so that it cannot be missing in the reference."""
    with pytest.raises(ValueError, match="FAMILIES"):
        list(events.of_module('def f(kind):\n    log.info(f"new.{kind}", a=1)\n', "module.py"))


def test_every_field_of_the_status_has_a_meaning() -> None:
    """Each field of the document's objects has a line with its meaning."""
    page = PAGES["status"]()
    wanted = [*status.node(), *(field.name for _, _, each in status.OBJECTS for field in fields(each))]
    assert sorted(names(page)) == sorted(wanted)
    assert set(status.NODE) == set(status.node())
    assert not re.findall(r"^.*\| *\|$", page, re.MULTILINE)


def test_texts_from_the_code_stay_what_they_are() -> None:
    """No text of a docstring becomes markup or a column."""
    assert prose("a `b|c` <d> *e* f_g [h] $i") == r"a `b|c` \<d\> \*e\* f\_g \[h\] \$i"
    assert table(("x",), [("a|b",)]).splitlines()[-1] == r"| a\|b |"


def test_every_key_of_pipeline_files_is_in_the_reference() -> None:
    """Each key of the schema has a line in the table of its section: of the file, of its parts, of each target."""
    page = PAGES["pipeline keys"]()
    assert "<!-- generated: pipeline keys -->" in (ROOT / "docs" / "pipelines.md").read_text()
    for heading, keys in pipelines.sections():
        [section] = [part for part in page.split("### ") if part.startswith(prose(heading) + "\n")]
        assert names(section) == list(keys["properties"]), heading


@pytest.mark.parametrize("kind", sorted(schema.targets()))
def test_the_page_about_pipelines_names_each_target_and_what_it_guarantees(kind: str) -> None:
    """The table under "Exactly once" has a line for it."""
    page = (ROOT / "docs" / "pipelines.md").read_text()
    guarantees = page[page.index("## Exactly once") :]
    assert re.search(rf"^\|.*`{kind}`", guarantees, re.MULTILINE)


@pytest.mark.parametrize("word", ["drop", "mask", "hash", "rename", "cast", "route", *MODES, *POLICIES, *COMMANDS_OF])
def test_the_page_about_pipelines_explains_each_choice(word: str) -> None:
    """Transforms, modes, policies and subcommands stand there in code."""
    page = (ROOT / "docs" / "pipelines.md").read_text()
    assert f"`{word}`" in page or f"canal-ha pipeline {word}" in page
