"""A full disk under the cursor file: the node raises an alarm, loses no acknowledgement, and recovers by itself."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lab import MariaDB, Node, follow
from tests.node.following import column, following, read, stream_of
from tests.node.test_bad_edit import metrics
from tests.waiting import until

pytestmark = pytest.mark.real


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    options = f"size=1m,uid={os.geteuid()}"
    subprocess.run([*root, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(tmp_path)], check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run([*root, "umount", "--lazy", str(tmp_path)], check=True)


def fill(path: Path) -> None:
    """Write until the file system is full."""
    with path.open("wb", buffering=0) as out, suppress(OSError):
        while True:
            out.write(b"x" * 512)


def test_a_full_disk(mariadb: MariaDB, database: str, small_disk: Path) -> None:
    """The log shows one alarm, the old file stays intact, and cursors advance in memory.

    The first flush with room writes the newest cursor. No acknowledged row comes again after a SIGKILL.
    """
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    tables = rf"{database}\.t"
    file = small_disk / "example" / "meta.dat"

    def stored() -> int:
        (data,) = json.loads(file.read_text())["clientDatas"]
        return int(data["cursor"]["postion"]["position"])

    def cursor() -> int:
        return int(stream_of(node, "example")["cursor"]["offset"])

    properties = {
        "canal.file.data.dir": str(small_disk),
        "canal.file.flush.period": "200",
        "canal.instance.tsdb.enable": "false",  # the table history would share the disk
    }
    with Node({"example": follow(mariadb)}, properties=properties) as node:
        with following(node, tables=tables) as client:
            mariadb.execute(f"INSERT INTO {database}.t VALUES (1)")
            assert column(read(client, 1)) == [1]
            until(lambda: stored() == cursor(), what="the first cursor in the file")
            before = stored()
            filler = small_disk / "filler"
            fill(filler)
            mariadb.execute(f"INSERT INTO {database}.t VALUES (2)")
            assert column(read(client, 1)) == [2]
            alarm = "cursor.write_failed destination=example"
            until(lambda: alarm in node.log_file("example"), what="the alarm")
            mariadb.execute(f"INSERT INTO {database}.t VALUES (3)")
            assert column(read(client, 1)) == [3]
            assert "No space left on device; will be tried again" in node.log_file("example")
            assert stored() == before < cursor()
            (shown,) = node.status()["alarms"]
            assert (shown["alarm"], shown["destination"]) == ("unwritten", "example")
            assert "No space left on device" in shown["text"]
            assert 'canal_node_alarm{destination="example",alarm="unwritten"} 1' in metrics(node)
            filler.unlink()
            until(lambda: stored() == cursor(), what="the cursor in the file")
            assert node.log_file("example").count(alarm) == 1
            until(lambda: "cursor.written_again" in node.log_file("example"), what="the end of the alarm")
            assert node.status()["alarms"] == []
            assert "canal_node_alarm" not in metrics(node)
        node.kill()
        node.start()
        with following(node, tables=tables) as client:
            mariadb.execute(f"INSERT INTO {database}.t VALUES (4)")
            assert column(read(client, 1)) == [4]


@pytest.mark.parametrize("what", ["canal.log.dir", "canal.instance.tsdb.dir"])
def test_a_full_disk_under_logs_or_history_is_an_alarm(
    mariadb: MariaDB, database: str, small_disk: Path, what: str
) -> None:
    """Rows flow on. The status names the file until there is room again, and then what was kept back is written."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    alarm = "logs" if what == "canal.log.dir" else "history"
    with Node({"example": follow(mariadb)}, properties={what: str(small_disk)}) as node:

        def alarms() -> list[str]:
            return [each["alarm"] for each in node.status()["alarms"]]

        with following(node, tables=rf"{database}\.t") as client:
            mariadb.execute(f"INSERT INTO {database}.t VALUES (1)")
            assert column(read(client, 1)) == [1]
            filler = small_disk / "filler"
            fill(filler)
            for number in range(2, 5):
                mariadb.execute(
                    f"ALTER TABLE {database}.t ADD c{number} int COMMENT '{'x' * 900}'",
                    f"INSERT INTO {database}.t (id) VALUES ({number})",
                )
                assert column(read(client, 1)) == [number]
            until(lambda: alarms() == [alarm], what="the alarm")
            filler.unlink()
            until(lambda: not alarms(), what="its end")
            mariadb.execute(f"INSERT INTO {database}.t (id) VALUES (5)")
            assert column(read(client, 1)) == [5]


def test_a_full_disk_under_the_audit(mariadb: MariaDB, database: str, small_disk: Path) -> None:
    """Rows go on, the status has an alarm, and the lines that waited are complete once there is room."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    path = small_disk / "audit.log"
    properties = {"canal.audit": "on", "canal.audit.file": str(path)}
    with Node({"example": follow(mariadb)}, properties=properties) as node:
        until(path.exists, what="the first line")
        filler = small_disk / "filler"
        fill(filler)
        for number in range(1, 80):  # each of them subscribes to something else, and has a line in the audit
            client_id = 1002 if number == 79 else 1001  # a stream that changes so often waits before its next dump
            with following(node, client_id=client_id, tables=rf"{database}\.t|{database}\.t{number}") as client:
                if number == 79:
                    mariadb.execute(f"INSERT INTO {database}.t VALUES (1)")
                    assert column(read(client, 1)) == [1]
        until(lambda: [alarm["alarm"] for alarm in node.status()["alarms"]] == ["audit"], what="the alarm")
        assert 1 <= node.log_file().count("audit.write_failed") <= 2  # for a line that is cut, and for no space
        filler.unlink()
        until(lambda: not node.status()["alarms"], what="the end of the alarm")
        until(lambda: path.read_text().count('"subscribe"') >= 79, what="the last line")
    text = path.read_text()
    whole = [line for line in text.splitlines() if line.endswith("}")]
    assert len(text.splitlines()) - len(whole) <= 1  # the one that met the full disk
    assert [json.loads(line)["action"] for line in whole].count("subscribe") == 79
