"""What `canal-ha cursor` shows, and what it asks before it changes anything."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest
from click.testing import CliRunner

from canal_ha.admin.address_file import AddressFile
from canal_ha.cli.cursor import Chosen, describe
from canal_ha.cli.main import group
from canal_ha.config.load import load_usable
from canal_ha.meta.files import meta_text
from canal_ha.meta.offline import CursorFiles
from canal_ha.meta.repository import Snapshot
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import SnapshotState
from lab import free_port, golden
from lab.node import PROGRAM


def test_a_clients_mark_cannot_steer_the_operators_terminal(tmp_path: Path) -> None:
    """A mark with line ends and control characters is shown with escapes, on its one line."""
    chosen = Chosen("example", 1001, CursorFiles(tmp_path), None, None)
    shown = describe(chosen, LogPosition("binlog.000001", 4, mark="\x1b[2J\nexample, client 7: \u202e"))
    _, mark = shown.split("\n")
    assert mark == r"mark of its client: \x1b[2J\nexample, client 7: \u202e"


@pytest.mark.parametrize("change", ["show", "delete --dry-run", "delete", "delete --yes"])
def test_a_cursor_cannot_steer_the_operators_terminal(conf: Path, change: str) -> None:
    """Its journal, addresses and GTID set are shown with escapes, also where the command asks whether to go on."""
    forged = "\x1b[2J\nexample, client 7: \u202e"
    cursors = {1001: LogPosition(f"bin{forged}", 4, gtid=forged, address=forged, part=1)}
    cursors[1001] = cursors[1001].beside([LogPosition(f"bin{forged}", 5, address=forged, part=2)])
    clients = {1001: ClientIdentity("example", 1001, "")}
    (conf / "example" / "meta.dat").write_text(meta_text("example", Snapshot(clients, cursors)))
    code, text = cursor(*change.split(), "--conf", str(conf), "--destination", "example", "--client-id", "1001")
    assert code == (2 if change == "delete" else 0)
    assert r"1/bin\x1b[2J\nexample, client 7: \u202e:4, 2/bin\x1b[2J" in text.replace("\n", " ")
    assert "".join(text.split("\n")).isprintable()
    assert "\nexample, client 7" not in text


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """Return the configuration of a stopped node whose files have the clients 1001 and 1002."""
    (tmp_path / "example").mkdir()
    (tmp_path / "example" / "instance.properties").write_text("canal.instance.master.address = 127.0.0.1:3306\n")
    (tmp_path / "canal.properties").write_text(
        f"canal.destinations = example\ncanal.file.data.dir = {tmp_path}\ncanal.port = {free_port()}\n"
    )
    clients = {number: ClientIdentity("example", number, "") for number in (1001, 1002)}
    cursors = {1001: LogPosition("mysql-bin.000001", 4)}
    (tmp_path / "example" / "meta.dat").write_text(meta_text("example", Snapshot(clients, cursors)))
    return tmp_path


def cursor(*arguments: str) -> tuple[int, str]:
    """Run the command without a terminal; return its exit code and its output."""
    ended = CliRunner().invoke(group, ["cursor", *arguments])
    return ended.exit_code, ended.output or str(ended.exception)


def test_a_cursor_cannot_steer_the_terminal_of_check(conf: Path) -> None:
    """`canal-ha check` prints each finding on one line."""
    ours, theirs = (f"127.0.0.1:{free_port()}" for _ in range(2))
    (conf / "example" / "instance.properties").write_text(
        f"canal.instance.master.address = {ours}\ncanal.instance.standby.address = {theirs}\n"
    )
    port = int(theirs.rpartition(":")[2])
    cursors = {1001: LogPosition("bin\x1b[2J\nOK", 4, address="127.0.0.1", port=port)}
    clients = {1001: ClientIdentity("example", 1001, "")}
    (conf / "example" / "meta.dat").write_text(meta_text("example", Snapshot(clients, cursors, servers=(ours,))))
    text = CliRunner().invoke(group, ["check", "--conf", str(conf)]).output
    assert rf"client 1001 at bin\x1b[2J\nOK:4: a position of {theirs}" in text


def test_no_client_id_is_guessed(conf: Path) -> None:
    """The commands that change something name the known ones; `show` shows all."""
    where = ("--conf", str(conf), "--destination", "example")
    for command in (("set", "--to", "mysql-bin.000001:4"), ("reset",), ("delete",)):
        code, text = cursor(*command, *where, "--yes")
        assert (code, "give --client-id; clients of example: 1001, 1002" in text) == (2, True)
    code, text = cursor("show", *where)
    assert (code, "example, client 1001: mysql-bin.000001:4" in text, "client 1002: no cursor yet" in text) == (
        0,
        True,
        True,
    )


def test_a_script_has_to_confirm(conf: Path) -> None:
    """Without a terminal and without --yes nothing changes, and the error says what would have."""
    where = ("--conf", str(conf), "--destination", "example", "--client-id", "1001")
    before = (conf / "example" / "meta.dat").read_bytes()
    code, text = cursor("delete", *where)
    assert code == 2
    assert "example, client 1001: would delete the client id, its cursor mysql-bin.000001:4. Nothing was chan" in text
    assert (conf / "example" / "meta.dat").read_bytes() == before
    assert cursor("delete", *where, "--yes")[0] == 0
    assert CursorFiles(conf).clients("example") == (1002,)


@pytest.mark.parametrize(("answer", "left"), [("n", (1001, 1002)), ("y", (1002,))])
def test_a_person_is_asked_on_a_terminal(conf: Path, answer: str, left: tuple[int, ...]) -> None:
    """Only a yes changes anything."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        command = [PROGRAM, "cursor", "delete", "--conf", str(conf), "--destination", "example", "--client-id", "1001"]
        ended = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    assert "would delete the client id" in ended.stdout
    assert "Go on? [y/N]" in ended.stdout
    assert CursorFiles(conf).clients("example") == left


@pytest.fixture
def archived(conf: Path) -> Path:
    """Return the same configuration, about a directory of binlog files."""
    directory = conf / "archive"
    directory.mkdir()
    (directory / "mysql-bin.000001").write_bytes(golden.binlog("mysql9"))
    (conf / "example" / "instance.properties").write_text(f"canal.instance.parser.directory = {directory}\n")
    with (conf / "canal.properties").open("a") as file:
        file.write("canal.instance.example.spring.xml = classpath:spring/local-instance.xml\n")
    return conf


@pytest.mark.parametrize("change", ["set --to earliest", "reset", "delete"])
def test_a_node_that_starts_during_the_prompt_keeps_its_cursors(archived: Path, change: str) -> None:
    """The node would write its own cursors over the change. The command looks again behind the answer."""
    file = archived / "example" / "meta.dat"
    before = file.read_bytes()
    port = int((archived / "canal.properties").read_text().partition("canal.port = ")[2].split()[0])
    ours, theirs = pty.openpty()
    where = ["--conf", str(archived), "--destination", "example", "--client-id", "1001"]
    try:
        with (
            subprocess.Popen(
                [PROGRAM, "cursor", *change.split(), *where], stdin=theirs, stdout=PIPE, stderr=STDOUT, bufsize=0
            ) as command,
            socket.socket() as node,
        ):
            assert command.stdout is not None
            said = b""
            while b"Go on?" not in said and (more := command.stdout.read(4096)):
                said += more
            node.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            node.bind(("127.0.0.1", port))
            node.listen()
            os.write(ours, b"y\n")
            said += command.stdout.read()
    finally:
        os.close(ours)
        os.close(theirs)
    assert f"a node runs on port {port} and would overwrite the change" in said.decode()
    assert command.returncode == 1
    assert file.read_bytes() == before


def test_a_moved_cursor_keeps_the_progress_of_its_snapshot(archived: Path) -> None:
    """Rows that the snapshot had not read yet were lost without a word."""
    state = SnapshotState("s", ("shop.orders", "shop.items"), rows=7).text
    cursors = {1001: LogPosition("mysql-bin.000001", 4, mark="of the old place", snapshot=state)}
    clients = {1001: ClientIdentity("example", 1001, "")}
    (archived / "example" / "meta.dat").write_text(meta_text("example", Snapshot(clients, cursors)))
    where = ("--conf", str(archived), "--destination", "example", "--client-id", "1001", "--yes")
    for change in (("set", "--to", "latest"), ("reset",)):
        code, text = cursor(*change, *where)
        assert (code, "moved from" in text) == (0, True), text
        moved = CursorFiles(archived).read("example", 1001)
        assert moved is not None
        assert (moved.snapshot, moved.mark) == (state, "")


def test_a_running_node_without_a_data_port_keeps_its_cursors(conf: Path) -> None:
    """A node that writes to Kafka serves no clients. The command deleted the cursor of its flow beside it."""
    with (conf / "canal.properties").open("a") as file:
        file.write("canal.serverMode = kafka\nkafka.bootstrap.servers = 127.0.0.1:1\ncanal.log.dir = logs\n")
    with (conf / "example" / "instance.properties").open("a") as file:
        file.write("canal.mq.topic = t\n")
    where = ("--conf", str(conf), "--destination", "example", "--client-id", "1001", "--yes")
    node = AddressFile(load_usable(conf, (), {}).status_address_file)
    node.write("http://127.0.0.1:8089")
    code, text = cursor("delete", *where)
    assert (code, "a node runs with this configuration, at http://127.0.0.1:8089, and would overwrite" in text) == (
        1,
        True,
    )
    node.remove()
    assert cursor("delete", *where)[0] == 0
