"""A node tells its handlers about alarms."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from canal_ha.alarms.delivery import AlarmDelivery
from canal_ha.alarms.notice import Notice
from canal_ha.config.load import load_usable
from canal_ha.instance.alarms import MEANINGS
from canal_ha.instance.status import InstanceStatus, StreamStatus
from canal_ha.node import told_alarms
from canal_ha.node.node import Node as OwnNode
from canal_ha.node.told_alarms import ToldAlarms
from lab import MariaDB, Node, follow
from lab.node import PROGRAM
from lab.ports import LOOPBACK, free_port
from tests.alarms.test_alarms import NOTICE, web_server
from tests.running_reactor import running_reactor
from tests.waiting import until
from tests.zookeeper.stage import on_reactor, reactor


def test_receivers_that_hang_delay_no_cursor_and_no_other_work_of_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cursors are flushed first. Then three receivers together get the time of one, while the reactor works."""
    monkeypatch.setattr(told_alarms, "CLOSE_WITHIN_S", 1.0)
    held, beats = threading.Event(), []

    class Hangs:
        def send(self, notice: Notice) -> None:
            held.wait(30)

    text = f"canal.ip = {LOOPBACK}\ncanal.port = {free_port()}\ncanal.metrics.pull.port = 0\n"
    (tmp_path / "canal.properties").write_text(f"{text}canal.admin.http.port = -1\n")
    running_reactor()
    node = OwnNode(load_usable(tmp_path, (), {}), reactor)
    deliveries = [AlarmDelivery(str(number), Hangs()) for number in range(3)]
    node._told = ToldAlarms("n", reactor, tuple, deliveries)
    flush = node._hosting.flush

    async def flushed() -> None:
        beats.append(("flush", time.monotonic()))
        await flush()

    def beat() -> None:
        beats.append(("beat", time.monotonic()))
        reactor.callLater(0.05, beat)

    async def stop() -> None:
        reactor.callLater(0, beat)
        await node.stop()

    on_reactor(node.start)
    for each in deliveries:
        each.put(NOTICE)
    monkeypatch.setattr(node._hosting, "flush", flushed)
    began = time.monotonic()
    on_reactor(stop)
    took_s = time.monotonic() - began
    held.set()
    (flush_at,) = [at for name, at in beats if name == "flush"]
    assert flush_at - began < 0.9
    assert 1.0 <= took_s < 2.5
    assert len(beats) > 10


def test_the_notice_of_a_purged_journal_leads_to_the_page_about_lost_cursors() -> None:
    """It led to the page about events that cannot be decoded, as for any other stream that has stopped."""
    lost = StreamStatus(7, "", "failed", error="mysql-bin.000001 is purged", alarms=("lost",))
    streams = (lost, replace(lost, client_id=8, error="malformed event", alarms=("purge",)))
    found = told_alarms.subjects((), [InstanceStatus("example", "db:3306", streams=streams)], ())
    told = [
        (each.client_id, Notice(each, "n", True, text, 0.0).runbook.rpartition("/")[2], text) for each, text in found
    ]
    assert told == [
        (7, "cursor-lost.md", "mysql-bin.000001 is purged"),
        (8, "poison-event.md", "malformed event"),
        (8, "cursor-lost.md", f"client 8 of example: {MEANINGS['purge']}"),
    ]


@pytest.mark.real
def test_a_bad_edit_reaches_a_webhook_and_so_does_its_repair(mariadb: MariaDB, tmp_path: Path) -> None:
    """The notice has file, line and reason. `check` names the handlers, and refuses a wrong file."""
    scan = {"canal.auto.scan": "true", "canal.auto.scan.interval": "0.5", "canal.alarm.file": str(tmp_path / "alarms")}
    with web_server(204) as (url, requests):
        (tmp_path / "alarms").write_text(f'[handlers.pager]\ntype = "webhook"\nurl = "{url}"\n')
        with Node({"example": follow(mariadb)}, properties=scan) as node:
            path = node.conf / "example" / "instance.properties"
            good = path.read_text()
            path.write_text(good + "canal.instance.master.position = far\n")
            until(lambda: len(requests) == 1, what="the notice", seconds=20)
            path.write_text(good)
            until(lambda: len(requests) == 2, what="the end", seconds=20)
            begins, over = (json.loads(body) for _, body in requests)
            assert (begins["alarm"], begins["state"]) == ("configuration.refused", "begins")
            assert "canal.instance.master.position = 'far'" in begins["text"]
            assert (over["state"], over["node"]) == ("over", node.address)
            command = [PROGRAM, "check", "--conf", str(node.conf)]
            assert "go to pager" in subprocess.run(command, capture_output=True, text=True).stdout
            (tmp_path / "alarms").write_text("[handlers.pager]\n")
            done = subprocess.run(command, capture_output=True, text=True)
            assert (done.returncode, "handlers.pager has no type" in done.stdout) == (1, True)
