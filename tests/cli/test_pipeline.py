"""`canal-ha pipeline` with YAML files: files, plans and refusals, without servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from canal_ha.cli.main import group
from canal_ha.cli.pipeline import _Shown
from canal_ha.errors import CanalError, OptionInvalid
from canal_ha.model.position import LogPosition
from canal_ha.pipeline import description, inspection, schema
from canal_ha.pipeline.flow import FlowState
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.state_lock import alone
from canal_ha.spark import pipeline_file
from lab.ports import free_port
from lab.process import spawn
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "conf" / "pipeline"


def pipeline(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(group, ["pipeline", *arguments])


def written(directory: Path, text: str) -> str:
    """Write a file; return its name."""
    file = directory / "shop.yaml"
    file.write_text(text)
    return str(file)


def into_parquet(directory: Path, *, source: str = "servers", more: str = "", state: str = "state") -> str:
    """Write a file of a pipeline whose source does not answer; return its name.

    source: the option that names the source.
    more: other options of the source.
    state: directory, below the given one.
    """
    text = (
        f"name: shop\nengine: embedded\nstate: {directory}/{state}\ntables: [s.t]\n"
        f"source: {{{source}: '127.0.0.1:{free_port()}', destination: d{more}}}\n"
        f"target: {{type: parquet, mode: changelog, path: {directory}/lake}}\n"
    )
    return written(directory, text)


SPARK = """\
name: shop
engine: spark
state: {state}
source: {{servers: "127.0.0.1:1", destination: example, password: "${{env:CANAL_TEST_WORD}}"}}
tables: [shop.orders, shop.no]
keys: {{shop.log: id}}
target: {{type: delta, path: lake, storage: {{aws_secret_access_key: "${{env:CANAL_TEST_WORD}}"}}}}
spark:
  master: local[1]
  trigger: 1 second
  settings: {{spark.ui.enabled: false, spark.my.setting: "${{env:CANAL_TEST_WORD}}"}}
"""


# ---- init and the examples


@pytest.mark.parametrize("kind", sorted(schema.targets()))
def test_init_writes_a_file_that_loads(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the example of conf/pipeline, has a comment for each key that it sets, and is not overwritten."""
    monkeypatch.chdir(tmp_path)
    assert pipeline("init", kind).exit_code == 0
    file = Path(f"shop-{kind}.yaml")
    found = description.load(file)
    assert (found.target.kind, found.target.mode) == (kind, schema.default_mode(kind))
    assert file.read_text() == (EXAMPLES / f"{kind}.yaml").read_text()
    again = pipeline("init", kind)
    assert again.exit_code == 1
    assert isinstance(again.exception, OptionInvalid)
    assert "exists already" in str(again.exception)


def test_init_without_a_type_lists_the_types() -> None:
    """One line for each."""
    lines = pipeline("init").output.splitlines()
    assert [line.split()[0] for line in lines] == list(schema.targets())


def test_init_of_an_unknown_type_names_the_types(tmp_path: Path) -> None:
    """Nothing is written."""
    result = pipeline("init", "fax", "--file", str(tmp_path / "f.yaml"))
    assert "no target has the type 'fax': use one of" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_example_loads(file: Path) -> None:
    """As it is shipped."""
    assert description.load(file).target.kind == file.stem


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.stem)
def test_every_old_example_loads(file: Path) -> None:
    """Files from before YAML keep working."""
    assert pipeline_file.load(file).tables


def test_examples_use_different_client_ids() -> None:
    """Two of them can run at the same time."""
    ids = [description.load(file).source["clientId"] for file in EXAMPLES.glob("*.yaml")]
    assert len(set(ids)) == len(ids)


def test_the_schema_is_printed_for_editors() -> None:
    """It is the one that files are checked with."""
    assert json.loads(pipeline("schema").output) == schema.joined()


# ---- the same file on Spark


def test_a_yaml_file_becomes_what_spark_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State holds spool and checkpoint. Spark gets no secret but where it hides it."""
    monkeypatch.setenv("CANAL_TEST_WORD", "hunter2")
    found = pipeline_file.load(written(tmp_path, SPARK.format(state=tmp_path)))
    assert (found.name, found.tables, found.keys) == ("shop", ("shop.orders", "shop.no"), {"shop.log": ("id",)})
    assert (found.checkpoint, found.options.spool_dir) == (f"{tmp_path}/checkpoint", f"{tmp_path}/spool")
    assert (found.master, found.trigger) == ("local[1]", "1 second")
    assert found.spark == {"spark.ui.enabled": "false"}
    assert found.secrets == {"spark.my.setting": "hunter2"}
    assert found.source["password"] == "${env:CANAL_TEST_WORD}"
    assert found.options.password == "hunter2"
    assert found.sinks == ()
    assert found.described is not None
    assert found.described.target.options == {"path": "lake", "storage": {"aws_secret_access_key": "hunter2"}}
    assert found.options.filter == found.source["filter"] == r"shop\.orders,shop\.no"
    assert "hunter2" not in repr(found)


def test_what_spark_cannot_do_is_said_before_anything_starts(tmp_path: Path) -> None:
    """A target whose progress is a file needs a directory that executors can lock and replace files in."""
    text = (
        "name: a\nengine: spark\nstate: s3://b/a\nsource: {servers: 'a:1', destination: d}\n"
        "target: {type: http, url: 'http://a'}"
    )
    for command in ("run", "check", "status"):
        error = pipeline(command, written(tmp_path, text)).exception
        assert isinstance(error, OptionInvalid)
        assert "state = s3://b/a: a target of type http keeps its progress there, and needs a directory" in str(error)


def test_a_toml_file_does_not_run_on_the_embedded_engine() -> None:
    """The error says where a YAML file comes from."""
    error = pipeline("run", "--engine", "embedded", str(EXAMPLES / "delta.toml")).exception
    assert isinstance(error, OptionInvalid)
    assert "a TOML file runs on Spark; `canal-ha pipeline init` writes a YAML file" in str(error)


@pytest.mark.parametrize(
    ("written_engine", "option", "installed", "engine", "why"),
    [
        ("", None, True, "spark", "pyspark is installed"),
        ("", None, False, "embedded", "pyspark is not installed"),
        ("engine: embedded", None, True, "embedded", "engine in the file"),
        ("engine: embedded", "spark", True, "spark", "--engine"),
        ("engine: spark", None, False, "spark", "engine in the file"),
    ],
)
def test_what_chooses_the_engine(
    written_engine: str,
    option: description.Engine | None,
    installed: bool,
    engine: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The option, then the file, then what is installed."""
    monkeypatch.setattr(description, "find_spec", lambda name: object() if installed else None)
    text = f"name: a\n{written_engine}\nsource: {{servers: 'a:1', destination: d}}\ntarget: {{type: http, url: 'http://a'}}"
    found = description.load(written(tmp_path, text), option)
    assert (found.engine, found.why_engine) == (engine, why)


# ---- plan, list, check


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands wait less for a node, where none answers."""
    monkeypatch.setattr(inspection, "WAIT_S", 0.5)


@pytest.mark.usefixtures("short_wait")
def test_a_plan_shows_tables_keys_and_transforms_without_secrets(tmp_path: Path) -> None:
    """Names at the target are those after the transforms. Where no node answers, the plan says so."""
    file = written(
        tmp_path,
        f"name: a\nengine: embedded\nstate: {tmp_path}\nsource: {{servers: '127.0.0.1:1', destination: d}}\n"
        "tables: [shop.orders, shop.users]\nkeys: {lake.users: [id, no]}\n"
        "transforms:\n- hash: {columns: email, key: hunter2}\n- route: {match: 'shop\\.(.*)', to: 'lake.\\1'}\n"
        "target: {type: http, url: 'http://127.0.0.1:1/rows'}\n",
    )
    result = pipeline("plan", file)
    assert result.output.splitlines()[:7] == [
        "a: engine embedded (engine in the file)",
        "target: http, mode events, columns: evolve",
        "table shop.orders -> lake.orders",
        "table shop.users -> lake.users",
        "key of lake.users: id, no",
        'transform 1: hash {columns: email, key: "***"}',
        'transform 2: route {match: "shop\\\\.(.*)", to: "lake.\\\\1"}',
    ]
    assert "d: begins at the present end of the source's binlog, or at the cursor of client id 1001" in result.output
    assert result.exit_code == 1
    assert "hunter2" not in result.output


@pytest.mark.usefixtures("short_wait")
def test_a_plan_does_not_show_what_placeholders_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither as a name, nor in a transform, nor in the name that a transform gives."""
    monkeypatch.setenv("CANAL_TEST_WORD", "hunter2")
    file = written(
        tmp_path,
        f"name: a\nengine: embedded\nstate: {tmp_path}\nsource: {{servers: '127.0.0.1:1', destination: d}}\n"
        "tables: [shop.users, '${env:CANAL_TEST_WORD}.*']\nkeys: {shop.users: '${env:CANAL_TEST_WORD}'}\n"
        "transforms:\n- mask: {columns: ['${env:CANAL_TEST_WORD}']}\n"
        "- rename: {tables: shop.users, to: 'x.${env:CANAL_TEST_WORD}'}\n"
        "target: {type: http, url: 'http://127.0.0.1:1/rows'}\n",
    )
    for command in ("plan", "list"):
        result = pipeline(command, file if command == "plan" else str(tmp_path))
        assert "***" in result.output
        assert "hunter2" not in result.output


@pytest.mark.parametrize(
    "transform",
    [
        "route: {match: '${env:CANAL_TEST_WORD}', to: a.b}",
        "route: {match: a, to: '${env:CANAL_TEST_WORD}'}",
        "rename: {columns: {a: '${env:CANAL_TEST_WORD}'}}",
        "cast: {columns: {a: '${env:CANAL_TEST_WORD}'}}",
    ],
)
def test_a_transform_that_cannot_be_used_does_not_show_what_placeholders_give(
    transform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RE2 would show the part of the expression that it cannot read."""
    monkeypatch.setenv("CANAL_TEST_WORD", "(hunter2" + "x" * 64)
    text = (
        "name: a\nsource: {servers: '127.0.0.1:1', destination: d}\ntarget: {type: http, url: 'http://127.0.0.1:1/'}\n"
    )
    result = pipeline("plan", written(tmp_path, f"{text}transforms:\n- {transform}\n"))
    assert "transforms[1]" in str(result.exception)
    assert "hunter2" not in str(result.exception) + result.output


def test_check_names_each_part_that_is_wrong_on_the_embedded_engine(tmp_path: Path) -> None:
    """The exit code is 1, and each part has one line."""
    text = "name: a\nengine: embedded\nsource: {servers: '127.0.0.1:1', destination: d}\n"
    target = f"state: {tmp_path}\ntarget: {{type: http, url: 'http://127.0.0.1:1/rows'}}\n"
    result = pipeline("check", written(tmp_path, text + target))
    assert result.exit_code == 1
    lines = {line.split()[1]: line for line in result.output.splitlines()}
    assert lines["servers"].startswith("FAIL")
    assert lines["destinations"].startswith("ok")
    assert "target" in lines


def test_check_and_plan_warn_of_a_key_that_no_table_uses(tmp_path: Path) -> None:
    """It is no failure: the table may come to the file later."""
    file = written(
        tmp_path,
        f"name: shop\nengine: embedded\nstate: {tmp_path}/state\ntables: [shop.*]\nkeys: {{Shop.log: k}}\n"
        f"source: {{servers: '127.0.0.1:{free_port()}', destination: d}}\n"
        f"target: {{type: parquet, mode: changelog, path: {tmp_path}/lake}}\n",
    )
    why = "Shop.log: `tables` does not include it: letter case counts"
    assert f"warn  keys          {why}\n" in pipeline("check", file).output
    assert f"warning: keys: {why}\n" in pipeline("plan", file).output


def test_list_shows_each_file_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    """Old files too; what is no YAML or TOML is left out."""
    (tmp_path / "a.yaml").write_text((EXAMPLES / "http.yaml").read_text())
    (tmp_path / "b.toml").write_text((EXAMPLES / "parquet.toml").read_text())
    (tmp_path / "c.yml").write_text("name: c\ntarget: {type: http, url: 'http://h'}\n")
    (tmp_path / "notes.txt").write_text("x")
    result = pipeline("list", str(tmp_path))
    first, second, third = result.output.splitlines()
    assert first.split()[:4] == ["shop-http", "embedded", "http", "(events)"]
    assert second.split()[:4] == ["changes", "spark", "parquet,", "console"]
    assert third.startswith("FAIL")
    assert "c.yml:1: source is missing" in third
    assert result.exit_code == 1


def test_a_pipe_in_the_directory_held_a_list(tmp_path: Path) -> None:
    """It waited for a writer."""
    os.mkfifo(tmp_path / "a.yaml")
    result = pipeline("list", str(tmp_path))
    assert (result.exit_code, result.output.split()[0]) == (0, "-")


def test_foreign_files_are_no_failures_of_a_list(tmp_path: Path) -> None:
    """A directory may have other YAML and TOML files, of any content."""
    (tmp_path / "compose.yaml").write_text("name: c\nservices:\n  db:\n    volumes:\n    - source: ./x\n")
    (tmp_path / "manifest.yml").write_text("kind: A\n---\nkind: !B x\n")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (tmp_path / "shop.yaml").write_text((EXAMPLES / "http.yaml").read_text())
    result = pipeline("list", str(tmp_path))
    *others, shown = result.output.splitlines()
    assert [line.split(maxsplit=1)[1] for line in others] == [
        f"not a pipeline: {tmp_path}/{name}" for name in ("compose.yaml", "manifest.yml", "pyproject.toml")
    ]
    assert shown.startswith("shop-http ")
    assert result.exit_code == 0


def test_a_line_a_commit_at_most_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """What a destination waits for is shown at once, and the newest state at the end."""
    now = [0.0]
    shown = _Shown("a", lambda: now[0])
    progress = Progress("r", 3, LogPosition("bin.000001", 4), 0)
    shown([FlowState("d")])
    shown([FlowState("d", progress, 3, 30)])
    now[0] = 11.0
    shown([FlowState("d", progress, 4, 40)])
    shown([FlowState("d", progress, 5, 50)])
    shown([FlowState("d", progress, 5, 50, waiting="for a node")])
    shown([FlowState("d", progress, 6, 60, waiting="for a node")])
    shown.end()
    assert capsys.readouterr().err.splitlines() == [
        "a: d: 0 rows in 0 commits",
        "a: d: 40 rows in 4 commits up to bin.000001:4",
        "a: d: 50 rows in 5 commits up to bin.000001:4; waits: for a node",
        "a: d: 60 rows in 6 commits up to bin.000001:4; waits: for a node",
    ]


def test_the_last_line_of_a_run_did_not_tell_that_rows_of_a_paused_snapshot_are_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run that ends by itself does not wait for them."""
    shown = _Shown("shop")
    progress = Progress("r", 3, LogPosition("bin.000001", 4), 0)
    state = FlowState("d", progress, 3, 30, snapshot="s1 has read 10 of about 20 rows, paused")
    shown([state])
    shown([replace(state, done=True)])
    shown.end()
    *_, last = capsys.readouterr().err.splitlines()
    assert last.endswith("rows, paused: its other rows are not in the target, resume it and run again")


def test_an_unreadable_file_is_one_line_for_each_mistake(tmp_path: Path) -> None:
    """The command line shows it without a traceback."""
    error = pipeline("run", written(tmp_path, "name: a\nsurce: 1\n")).exception
    assert isinstance(error, CanalError)
    lines = str(error).splitlines()
    assert all(line.startswith(f"{tmp_path}/shop.yaml:") for line in lines)
    assert any(line.endswith("surce is unknown; did you mean source?") for line in lines)


# ---- without a node


def test_commands_that_look_wait_shortly_for_a_node_and_log_text(tmp_path: Path) -> None:
    """They say what they found, and that no node answers."""
    file = into_parquet(tmp_path)
    shorter = "from canal_ha.pipeline import inspection; inspection.WAIT_S = 2.0"
    program = [sys.executable, "-c", f"{shorter}; from canal_ha.cli.main import main; main()", "pipeline"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    status, plan = [spawn([*program, command, file], **pipes) for command in ("status", "plan")]
    for process, says in ((status, "shop: d: nothing committed yet"), (plan, "d: begins at the present end")):
        out, errors = process.communicate(timeout=60)
        assert process.returncode == 1
        assert says in out
        assert "no connection to a node in time" in out
        assert "client.connection_failed destination=d" in errors
        assert "{" not in errors


@pytest.mark.parametrize(("source", "unknown"), [("servers", "progress"), ("zkServers", "cursor")])
def test_what_could_not_be_read_counted_as_missing(source: str, unknown: str, tmp_path: Path) -> None:
    """A status said that nothing is committed yet, and a plan, that the pipeline begins with the existing rows."""
    if unknown == "progress":
        (tmp_path / "lake").write_text("not a directory")
    file = into_parquet(tmp_path, source=source, more=", snapshot: initial")
    status, plan = pipeline("status", file), pipeline("plan", file)
    assert (status.exit_code, plan.exit_code) == (1, 1)
    assert ("nothing committed yet" in status.output) == (unknown == "cursor")
    assert "begins" not in plan.output
    assert f"d: {unknown} unknown" in plan.output


def test_a_check_tells_a_state_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """It is made if it is missing."""
    good = pipeline("check", into_parquet(tmp_path, state="new/state"))
    assert f"ok    state         {tmp_path}/new/state\n" in good.output
    assert list((tmp_path / "new" / "state").iterdir()) == []
    (tmp_path / "plain").write_text("a file")
    bad = pipeline("check", into_parquet(tmp_path, state="plain/state"))
    assert bad.exit_code == 1
    assert f"FAIL  state         {tmp_path}/plain/state cannot be written: Not a directory" in bad.output


def test_a_second_start_of_a_pipeline_ended_the_first_one(tmp_path: Path) -> None:
    """Without ZooKeeper nobody elects one of them, and the newer one took the client id. With it, the second waits."""
    file, lock = into_parquet(tmp_path), tmp_path / "state" / "run.lock"
    program = [sys.executable, "-c", "from canal_ha.cli.main import main; main()", "pipeline", "run", file]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with spawn(program, **pipes) as first:
        until(lambda: lock.exists() and lock.read_text().endswith("\n"), what="the first one has begun")
        with spawn(program, **pipes) as second:
            try:
                _, errors = second.communicate(timeout=30)
            finally:
                second.kill()
        assert second.returncode == 1
        assert f"the pipeline shop runs already: process {first.pid} on " in errors
        assert first.poll() is None
        first.kill()
    with alone(description.load(file)):  # the lock went with the process
        pass
