"""The configuration scan alone: which destinations it begins and ends when files change and when a begin fails."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from canal_ha.config.load import load_usable
from canal_ha.config.model import CanalConfig, CursorPlace, InstanceConfig
from canal_ha.node.scanning import Scan
from canal_ha.server.audit import Audit
from tests.running_reactor import running_reactor
from tests.waiting import until
from tests.zookeeper.stage import on_reactor, reactor

INTERVAL_S = 0.1
SCANNED = "canal.auto.scan = true"
ADDRESS = "canal.instance.master.address = db:3306\n"


class Hosted:
    """A configuration directory, a scan of it, and the ordered list of the destinations that it began and ended."""

    def __init__(self, conf: Path, scan: str = "canal.auto.scan=true") -> None:
        self.conf = conf
        self.main = conf / "canal.properties"
        self.edit(scan)
        self.configured: dict[str, InstanceConfig] = {}
        self.log: list[tuple[str, str]] = []
        self.broken: set[str] = set()  # destinations whose begin fails
        self.stuck: set[str] = set()  # destinations whose next end fails
        config = load_usable(conf, (), {})
        self.configured.update((each.destination, each) for each in config.destinations)
        self.applied: list[CanalConfig] = []
        self.scan = Scan(config, reactor, self.configured, self.begin, self.end, Audit(reactor), self.applied.append)

    def edit(self, *lines: str) -> None:
        """Write canal.properties: the lines of every test, then these."""
        common = ("canal.ip = 127.0.0.1", f"canal.auto.scan.interval = {INTERVAL_S}")
        self.main.write_text("".join(f"{line}\n" for line in (*common, *lines)))

    async def begin(self, config: InstanceConfig) -> None:
        self.configured[config.destination] = config
        self.log.append(("begin", config.destination))
        if config.destination in self.broken:
            raise RuntimeError("no good")

    async def end(self, destination: str) -> None:
        self.configured.pop(destination, None)
        self.log.append(("end", destination))
        if destination in self.stuck:
            self.stuck.remove(destination)
            raise RuntimeError("no end")

    def write(self, destination: str, text: str) -> Path:
        path = self.conf / destination / "instance.properties"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def alarms(self) -> list[tuple[str, str]]:
        return [(alarm.destination, alarm.alarm) for alarm in self.scan.alarms]


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    """Yield a Hosted that scans ten times a second."""
    running_reactor()
    made = Hosted(tmp_path)

    on_reactor(partial(_started, made.scan))
    yield made
    on_reactor(partial(_stopped, made.scan))


async def _started(scan: Scan) -> None:
    scan.start(())


async def _stopped(scan: Scan) -> None:
    scan.stop()


def test_an_error_that_nobody_foresaw_keeps_the_others_from_nothing(hosted: Hosted) -> None:
    """A destination whose begin fails raises an alarm and is tried again; other destinations begin."""
    hosted.broken.add("a")
    hosted.write("a", ADDRESS)
    hosted.write("b", ADDRESS)
    until(lambda: hosted.log.count(("begin", "a")) > 1, what="the second attempt")
    assert hosted.log.count(("begin", "b")) == 1
    assert hosted.alarms() == [("a", "refused")]
    assert "RuntimeError('no good')" in hosted.scan.alarms[0].text
    hosted.broken.clear()
    until(lambda: not hosted.alarms(), what="the attempt that succeeds")
    assert set(hosted.configured) == {"a", "b"}


def test_a_destination_whose_end_failed_begins_again(hosted: Hosted) -> None:
    """Nothing changes in the files afterwards."""
    path = hosted.write("a", ADDRESS)
    until(lambda: hosted.log == [("begin", "a")], what="the begin")
    hosted.stuck.add("a")
    path.write_text(ADDRESS + "canal.instance.filter.regex = shop\\\\..*\n")
    until(lambda: hosted.log[1:] == [("end", "a"), ("begin", "a")], what="the second begin")


def test_a_bad_file_ends_nothing_and_a_good_one_replaces(hosted: Hosted) -> None:
    """The scan ends a destination only if its new configuration is valid."""
    path = hosted.write("a", ADDRESS)
    until(lambda: hosted.log == [("begin", "a")], what="the begin")
    for bad, told in (
        ("", f"{path} is empty and canal.instance.master.address is set nowhere else;"),
        (ADDRESS + "canal.instance.filter.regex = (\n", "expected a list of regular expressions"),
        (ADDRESS + "x = \\u00\n", rf"{path}:2: \u00 is incomplete: write \u and four hexadecimal digits, or \\ for"),
        (ADDRESS.encode("utf-16").decode("latin-1"), f"{path} contains NUL bytes: save it as UTF-8;"),
    ):
        path.write_text(ADDRESS)
        until(lambda: not hosted.alarms(), what="the end of the alarm")
        path.write_text(bad, "latin-1")
        until(lambda: hosted.alarms() == [("a", "refused")], what="the alarm")
        assert told in hosted.scan.alarms[0].text
    path.unlink()
    path.mkdir()
    until(lambda: "is a directory; a file is expected" in hosted.scan.alarms[0].text, what="the alarm for a directory")
    assert hosted.log == [("begin", "a")]
    path.rmdir()
    path.write_text(ADDRESS + "canal.instance.stream.max = 3\n")
    until(lambda: len(hosted.log) == 3, what="the reload")
    assert hosted.log == [("begin", "a"), ("end", "a"), ("begin", "a")]
    assert hosted.configured["a"].stream_max == 3
    assert not hosted.alarms()


def test_a_file_of_its_own_that_goes_is_no_alarm(hosted: Hosted) -> None:
    """A destination that no list names ends with its file, even if the file was refused."""
    good, bad = hosted.write("a", ADDRESS), hosted.write("b", "")
    until(lambda: hosted.log == [("begin", "a")] and hosted.alarms() == [("b", "refused")], what="the begin")
    good.unlink()
    bad.unlink()
    until(lambda: ("end", "a") in hosted.log and not hosted.alarms(), what="the end")


def test_a_mistyped_key_is_told(hosted: Hosted, caplog: pytest.LogCaptureFixture) -> None:
    """The log names the key. The configuration does not change, so nothing restarts."""
    path = hosted.write("a", ADDRESS)
    until(lambda: hosted.log == [("begin", "a")], what="the begin")
    path.write_text(ADDRESS + "canal.instance.dbUsrname = canal\n")
    until(lambda: "dbUsrname" in caplog.text, what="the warning")
    assert hosted.log == [("begin", "a")]


def test_an_emptied_main_file_changes_nothing(hosted: Hosted) -> None:
    """Until the file is back, the node uses what it read at its start."""
    kept = hosted.main.read_text()
    hosted.write("a", ADDRESS)
    until(lambda: hosted.log == [("begin", "a")], what="the begin")
    hosted.main.write_text("")
    until(lambda: hosted.alarms() == [("", "refused")], what="the alarm")
    assert hosted.scan.alarms[0].text.startswith(f"{hosted.main} is empty: put its text back; the node goes on with")
    hosted.main.write_text(kept)
    until(lambda: not hosted.alarms(), what="its end")
    assert hosted.log == [("begin", "a")]


def test_a_default_in_the_main_file_restarts_only_what_it_changes(hosted: Hosted) -> None:
    """A destination with a value of its own goes on. A comment and another order restart nothing."""
    hosted.write("a", ADDRESS)
    hosted.write("b", ADDRESS + "canal.instance.stream.max = 3\n")
    until(lambda: len(hosted.log) == 2, what="the begin of two")
    hosted.edit("canal.instance.stream.max = 5", SCANNED)
    until(lambda: len(hosted.log) == 4, what="the reload")
    assert hosted.log[2:] == [("end", "a"), ("begin", "a")]
    assert [hosted.configured[name].stream_max for name in "ab"] == [5, 3]
    hosted.edit(SCANNED, "# moved", "canal.instance.stream.max = 5", "canal.client.connections.max = 7")
    until(lambda: [each.connections_max for each in hosted.applied] == [5000, 7], what="the limits")
    assert len(hosted.log) == 4
    assert not hosted.alarms()


def test_a_bad_main_file_changes_nothing(hosted: Hosted) -> None:
    """Not even its good lines. One alarm has file, line, key and reason. Meanwhile instance files are followed."""
    hosted.write("a", ADDRESS)
    until(lambda: hosted.log == [("begin", "a")], what="the begin")
    for bad, key in (("canal.port = eleven", "canal.port"), ("canal.instance.xa = no", "canal.instance.xa")):
        hosted.edit(SCANNED, "canal.instance.stream.max = 5", bad)
        until(lambda key=key: [each.key for each in hosted.scan.alarms] == [key], what="the alarm")  # type: ignore[misc]
        (alarm,) = hosted.scan.alarms
        assert (alarm.alarm, alarm.destination, alarm.file, alarm.line) == ("refused", "", str(hosted.main), 5)
        assert "expected" in alarm.reason
    hosted.write("b", ADDRESS)
    until(lambda: ("begin", "b") in hosted.log, what="a new destination")
    assert hosted.configured["b"].stream_max == 16
    hosted.edit(SCANNED, "canal.instance.stream.max = 5")
    until(lambda: not hosted.alarms(), what="the end of the alarm")
    until(lambda: hosted.configured["a"].stream_max == hosted.configured["b"].stream_max == 5, what="the reload")
    hosted.edit(SCANNED, "canal.ip = 0.0.0.0")
    until(lambda: hosted.alarms() == [("", "refused")], what="the alarm for a node that could not start")


def test_keys_that_need_a_restart_are_named(hosted: Hosted, caplog: pytest.LogCaptureFixture) -> None:
    """The alarm has both values, but none of a secret. The other keys of the same edit are used at once."""
    hosted.write("a", ADDRESS)
    until(lambda: hosted.log == [("begin", "a")], what="the begin")
    hosted.edit(SCANNED, f"canal.passwd = {'0' * 40}", "canal.user = eve", "canal.instance.stream.max = 5")
    until(lambda: hosted.alarms() == [("", "restart")], what="the alarm")
    until(lambda: hosted.log[1:] == [("end", "a"), ("begin", "a")], what="the reload")
    assert hosted.scan.alarms[0].text == (
        f"{hosted.main}:5 needs a restart: canal.user (running: blank, file: eve),"
        " canal.passwd (changed; its value is secret)"
    )
    assert "0000" not in caplog.text
    hosted.edit("canal.metrics.pull.port = 11112", SCANNED)
    until(lambda: not hosted.alarms(), what="its end: the value is the default")


@pytest.mark.parametrize("mode", ["tcp", "kafka"])
def test_an_edited_server_mode_waits_for_a_restart_also_in_destinations(tmp_path: Path, mode: str) -> None:
    """Clients and Kafka never both take the rows of a destination: the alarm names the keys, whose old values count."""
    running_reactor()
    kafka = ("kafka.bootstrap.servers = k:9092", "canal.mq.topic = t", "mode = kafka", "canal.serverMode = ${mode}")
    files = {"tcp": (SCANNED,), "kafka": (SCANNED, *kafka)}
    other = {
        "tcp": files["kafka"],
        "kafka": (SCANNED, *kafka[:2], "mode = tcp", kafka[3], "canal.mq.pipeline.name = x"),
    }
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "instance.properties").write_text(ADDRESS)
    hosted = Hosted(tmp_path, "\n".join(files[mode]))
    before = hosted.configured["a"].queue
    assert (before is not None) == (mode == "kafka")
    on_reactor(partial(_started, hosted.scan))
    try:
        for stream_max in (5, 6):
            hosted.edit(*other[mode], f"canal.instance.stream.max = {stream_max}")
            until(lambda most=stream_max: hosted.configured["a"].stream_max == most, what="the live key")  # type: ignore[misc]
            assert hosted.configured["a"].queue == before
        assert hosted.alarms() == [("", "restart")]
        assert f"canal.serverMode (running: {mode}, file: " in hosted.scan.alarms[0].text
        assert len(hosted.log) == 4
    finally:
        on_reactor(partial(_stopped, hosted.scan))


def test_the_list_of_destinations_is_followed(hosted: Hosted) -> None:
    """A destination whose keys are all in canal.properties begins and ends with the list, or with the expression."""
    hosted.edit(SCANNED, ADDRESS, "canal.destinations.expr = d{1-2}")
    until(lambda: sorted(hosted.log) == [("begin", "d1"), ("begin", "d2")], what="the begin of two")
    hosted.edit(SCANNED, ADDRESS, "canal.destinations.expr = d{2-3}")
    until(lambda: len(hosted.log) == 4, what="the change")
    assert sorted(hosted.log[2:]) == [("begin", "d3"), ("end", "d1")]
    hosted.edit(SCANNED, "canal.destinations = x,a")
    until(lambda: hosted.alarms() == [("a", "gone"), ("x", "gone")], what="the alarms for missing files")
    hosted.write("x", ADDRESS)
    hosted.edit(SCANNED, "canal.destinations = x")
    until(lambda: not hosted.alarms(), what="the end of the alarms")
    assert set(hosted.configured) == {"x"}


def test_overrides_for_one_destination_are_followed(hosted: Hosted) -> None:
    """Lazy and the template, for all destinations and for one. Only what changes begins again."""
    hosted.write("a", ADDRESS)
    hosted.write("b", ADDRESS)
    until(lambda: len(hosted.log) == 2, what="the begin of two")
    hosted.edit(SCANNED, "canal.instance.b.lazy = true")
    until(lambda: hosted.log[2:] == [("end", "b"), ("begin", "b")], what="the lazy one")
    hosted.edit(SCANNED, "canal.instance.global.lazy = true", "canal.instance.b.lazy = true")
    until(lambda: hosted.log[4:] == [("end", "a"), ("begin", "a")], what="the other one")
    memory = "canal.instance.a.spring.xml = classpath:spring/memory-instance.xml"
    hosted.edit(SCANNED, "canal.instance.global.lazy = true", memory)
    until(lambda: hosted.log[6:] == [("end", "a"), ("begin", "a")], what="the template")
    assert hosted.configured["a"].cursor_place is CursorPlace.MEMORY
    assert [hosted.configured[name].lazy for name in "ab"] == [True, True]


def test_without_a_scan_every_change_asks_for_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing begins or ends. Undoing the changes ends the alarms. Each alarm is logged once."""
    running_reactor()
    a = tmp_path / "a" / "instance.properties"
    a.parent.mkdir()
    a.write_text(ADDRESS)
    listed = "canal.destinations = a"
    hosted = Hosted(tmp_path, listed)
    on_reactor(partial(_started, hosted.scan))
    try:
        hosted.edit(listed, "canal.instance.stream.max = 5", "canal.client.connections.max = 7")
        until(lambda: hosted.alarms() == [("", "restart"), ("a", "restart")], what="the alarms")
        assert "canal.client.connections.max (running: 5000, file: 7)" in hosted.scan.alarms[0].text
        hosted.edit(listed)
        until(lambda: not hosted.alarms(), what="their end")
        a.write_text(ADDRESS + "canal.instance.xa = no\n")
        until(lambda: hosted.alarms() == [("a", "refused")], what="the refusal")
        assert "then restart the node" in hosted.scan.alarms[0].text
        a.rename(a.with_name("kept"))
        until(lambda: hosted.alarms() == [("a", "restart")], what="the alarm for a missing file")
        a.with_name("kept").rename(a)
        a.write_text(ADDRESS)
        until(lambda: not hosted.alarms(), what="its end")
    finally:
        on_reactor(partial(_stopped, hosted.scan))
    assert (hosted.log, hosted.applied) == ([], [])
    assert [caplog.text.count(f"'event': '{event}'") for event in ("scan.restart", "scan.refused")] == [3, 1]


def test_without_the_main_file_the_others_are_followed_but_none_ends(
    hosted: Hosted, caplog: pytest.LogCaptureFixture
) -> None:
    """Changed and new files take effect with the old canal.properties; removed destinations end when it is back."""
    caplog.set_level("INFO")
    main = hosted.conf / "canal.properties"
    a, b = hosted.write("a", ADDRESS), hosted.write("b", ADDRESS)
    until(lambda: len(hosted.log) == 2, what="the begin of two")
    kept = main.rename(main.with_name("kept"))
    until(lambda: hosted.alarms() == [("", "unreadable")], what="the alarm")
    assert hosted.scan.alarms[0].text.startswith(f"{main} does not exist; the node goes on with what it read")
    b.unlink()
    a.write_text(ADDRESS + "canal.instance.stream.max = 3\n")
    hosted.write("c", ADDRESS)
    until(
        lambda: sorted(hosted.log[2:]) == [("begin", "a"), ("begin", "c"), ("end", "a")],
        what="the reload and the start",
    )
    assert "'reason': 'changed'" in caplog.text
    kept.rename(main)
    until(lambda: ("end", "b") in hosted.log, what="the end of b")
    until(lambda: not hosted.alarms(), what="the end of the alarm")
    assert "'reason': 'gone'" in caplog.text
