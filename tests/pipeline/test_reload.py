"""A pipeline's file that changes while the pipeline runs."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time
from pathlib import Path
from random import Random

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner, Result

from canal_ha.cli.main import group
from canal_ha.pipeline.description import Description, read
from canal_ha.pipeline.reload import FileWatch, keep, note_of, noted, refusals
from lab import MySQL, Node, follow
from lab.process import spawn
from tests.pipeline.test_engine import create, selected, writing
from tests.pipeline.test_lake_real import replayed
from tests.waiting import until

PROGRAM = "from canal_ha.cli.main import main; main()"
FILE = """\
name: shop
engine: embedded
state: {state}
source:
  servers: 127.0.0.1:11111
  destination: example
  segmentBytes: 16384
transforms:
- drop: {{columns: secret}}
target:
  type: kafka
  servers: a:1
  properties: {{sasl.password: one, security.protocol: SASL_SSL}}
"""


def described(*changes: tuple[str, str], state: Path = Path("/s")) -> Description:
    """Read the file with other texts."""
    text = FILE.format(state=state)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return read(text.encode(), "shop.yaml")


@pytest.mark.parametrize(
    "change",
    [
        ("segmentBytes: 16384", "segmentBytes: 65536\n  fetchSize: 9\n  maxRowsPerTrigger: 7\n  password: x"),
        ("sasl.password: one", "sasl.password: two"),
        ("columns: secret}", "columns: secret}\n- mask: {columns: phone}"),
        ("servers: a:1", "servers: a:1\n  timeout: 5\n  evolve: stop"),
    ],
)
def test_limits_passwords_and_more_transforms_are_taken_over(change: tuple[str, str]) -> None:
    """They leave the target's rows and the place in the binlog alone."""
    assert list(refusals(described(), described(change))) == []


@pytest.mark.parametrize(
    ("change", "line", "key"),
    [
        (("name: shop", "name: other"), 1, "name"),
        (("destination: example", "destination: another"), 6, "source.destination"),
        (("  segmentBytes: 16384", "  clientId: 7"), 7, "source.clientId"),
        (("drop: {columns: secret}", "mask: {columns: secret}"), 9, "transforms[1]"),
        (("type: kafka\n  servers: a:1", "type: kafka\n  servers: b:1"), 12, "target.servers"),
        (("SASL_SSL", "SSL"), 13, "target.properties.security.protocol"),
    ],
)
def test_a_place_or_a_name_is_not_taken_over(change: tuple[str, str], line: int, key: str) -> None:
    """The refusal has line and key, and what to do."""
    new = described(change)
    found = list(refusals(described(), new))
    assert (key, line) in [(each.named, new.line(each.place)) for each in found]
    assert all("stop the pipeline and start it again" in each.why or "begin anew" in each.why for each in found)


def test_a_target_with_rows_takes_no_transform_over() -> None:
    """Its older rows have the columns from before."""
    mirror = (
        "type: kafka\n  servers: a:1\n  properties: {sasl.password: one, security.protocol: SASL_SSL}",
        "type: delta\n  path: p",
    )
    more = ("columns: secret}", "columns: secret}\n- mask: {columns: phone}")
    [found] = refusals(described(mirror), described(mirror, more))
    assert found.named == "transforms[2]"
    log = ("path: p", "path: p\n  mode: changelog")
    assert list(refusals(described(mirror, log), described(mirror, log, more))) == []


@pytest.mark.parametrize(
    "more",
    [
        "rename: {tables: a.b, to: c.d}",
        "route: {match: 'a[.](.*)', to: 'b.\\1'}",
        "mask: {columns: x}\n- route: {match: a.b, to: c.d}",
    ],
)
def test_a_new_name_of_a_table_is_not_taken_over(more: str) -> None:
    """A portion that a lake has in part would come twice: a table stores under its name what it has."""
    log = (
        "type: kafka\n  servers: a:1\n  properties: {sasl.password: one, security.protocol: SASL_SSL}",
        "type: delta\n  path: p\n  mode: changelog",
    )
    columns = ("columns: secret}", "columns: secret}\n- rename: {tables: a.b, columns: {x: y}}")
    assert list(refusals(described(log), described(log, columns))) == []
    [found] = refusals(described(log), described(log, ("columns: secret}", f"columns: secret}}\n- {more}")))
    assert "another name" in found.why


def test_a_file_that_is_being_written_is_left_alone_until_it_rests(tmp_path: Path) -> None:
    """An editor may write it in parts, or replace it."""
    file = tmp_path / "shop.yaml"
    file.write_text("a")
    watch = FileWatch(str(file))
    assert not watch.changed()
    file.write_text("ab")
    assert not watch.changed()
    file.write_text("abc")
    assert not watch.changed()
    assert watch.changed()
    assert not watch.changed()
    file.unlink()
    assert [watch.changed() for _ in range(3)] == [False, True, False]


def test_a_note_is_about_the_file_as_it_was(tmp_path: Path) -> None:
    """After another change of the file, it says nothing."""
    file = tmp_path / "shop.yaml"
    file.write_text(FILE.format(state=tmp_path / "state"))
    found = read(file.read_bytes(), str(file))
    assert noted(found) == ""
    keep(found.state, note_of(found, "why"))
    assert noted(found) == "why"
    file.write_text(file.read_text() + "# more\n")
    assert noted(found) == ""


def test_a_closed_terminal_ends_a_pipeline(tmp_path: Path) -> None:
    """Its SIGHUP does not leave a process behind that nobody sees; one from a person does not end it."""
    log = tmp_path / "log"

    def wait(event: str) -> None:
        until(lambda: log.exists() and log.read_text().splitlines()[-1:] == [event], what=event)

    child, terminal = pty.fork()
    if not child:
        command = (
            "import pathlib, sys, time\nfrom canal_ha.pipeline.engine import _signalled\n"
            "log = open(sys.argv[1], 'a', 1)\n"
            "with _signalled(lambda: log.write('stop\\n'), lambda: log.write('reload\\n')):\n"
            "    log.write('ready\\n')\n    time.sleep(60)\n"
        )
        os.execv(sys.executable, [sys.executable, "-c", command, str(log)])
    try:
        wait("ready")
        os.kill(child, signal.SIGHUP)
        wait("reload")
        os.close(terminal)
        wait("stop")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def status(file: Path) -> Result:
    """Run the command."""
    return CliRunner().invoke(group, ["pipeline", "status", str(file)])


@pytest.mark.real
def test_a_file_changes_under_load_and_no_row_is_lost_or_doubled(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """Good edits and SIGHUP are taken over between commits; bad and unsafe ones change nothing and show in status."""
    name, file, random = create(mysql, database), tmp_path / "shop.yaml", Random()
    with Node({database: follow(mysql)}) as node:
        good = (
            f"name: shop\nengine: embedded\nstate: {tmp_path}/state\ntables: {name}\n"
            f"source: {{servers: '{node.address}', destination: {database}, segmentBytes: 16384, fetchSize: 16}}\n"
            f"target: {{type: parquet, path: {tmp_path}/log}}\n"
        )
        file.write_text(good)
        log = tmp_path / "log.txt"
        with log.open("wb") as output:
            command = [sys.executable, "-c", PROGRAM, "pipeline", "run", str(file)]
            process = spawn(command, env={**os.environ}, stdout=output, stderr=output)

        def wait(event: str, times: int) -> None:
            until(lambda: log.read_text().count(event) == times, what=f"{event} comes {times} times")

        try:
            wait("pipeline.active", 1)
            with writing(mysql, name):
                time.sleep(random.random())
                good = good.replace("segmentBytes: 16384", "segmentBytes: 65536")
                good += "transforms: [{mask: {tables: other.*, columns: x}}]\n"
                (tmp_path / "new").write_text(good)
                (tmp_path / "new").replace(file)
                wait("pipeline.file_taken_over", 1)
                wait("pipeline.active", 2)
                time.sleep(random.random())
                process.send_signal(signal.SIGHUP)
                wait("pipeline.file_taken_over", 2)
                wait("pipeline.active", 3)
                for number, bad in enumerate(
                    (good + "nonsense: 1\n", good.replace(f"{tmp_path}/log", "/elsewhere")), 1
                ):
                    file.write_text(bad)
                    wait("pipeline.file_refused", number)
                    until(lambda: status(file).exit_code == 1, what="the alarm, which comes behind the log")
                    shown = status(file)
                    said = shown.output + str(shown.exception)
                    expected = ("shop.yaml:8: nonsense is unknown", "goes on with the file as it was before")
                    if number == 2:
                        expected = ("alarm: the running pipeline", "shop.yaml:6: target.path has changed: give it")
                    assert all(each in said for each in expected), said
                file.write_text(good)
                until(lambda: status(file).exit_code == 0, what="the alarm is gone")
                time.sleep(1)
            assert process.poll() is None
            wait("pipeline.active", 3)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        once = CliRunner().invoke(group, ["pipeline", "run", "--once", str(file)])
        assert once.exit_code == 0, once.output
        changes = ds.dataset(tmp_path / "log" / database / "a").to_table().to_pylist()
        assert replayed(changes) == selected(mysql, name)
        assert len(changes) > 100
