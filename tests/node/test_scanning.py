"""The configuration scan alone: which destinations it begins and ends when files change and when a begin fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from canal_ha.config.load import load_usable
from canal_ha.config.model import InstanceConfig
from canal_ha.node.scanning import Scan
from canal_ha.server.audit import Audit
from tests.waiting import until
from tests.zookeeper.stage import on_reactor, reactor, start_reactor

INTERVAL_S = 0.1
ADDRESS = "canal.instance.master.address = db:3306\n"


class Hosted:
    """A configuration directory, a scan of it, and the ordered list of the destinations that it began and ended."""

    def __init__(self, conf: Path) -> None:
        self.conf = conf
        (conf / "canal.properties").write_text(f"canal.auto.scan=true\ncanal.auto.scan.interval={INTERVAL_S}\n")
        self.configured: dict[str, InstanceConfig] = {}
        self.log: list[tuple[str, str]] = []
        self.broken: set[str] = set()  # destinations whose begin fails
        config = load_usable(conf, (), {})
        self.scan = Scan(config, reactor, self.configured, self.begin, self.end, Audit(reactor))

    async def begin(self, config: InstanceConfig) -> None:
        self.configured[config.destination] = config
        self.log.append(("begin", config.destination))
        if config.destination in self.broken:
            raise RuntimeError("no good")

    async def end(self, destination: str) -> None:
        self.configured.pop(destination, None)
        self.log.append(("end", destination))

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
    start_reactor()
    made = Hosted(tmp_path)

    async def start() -> None:
        made.scan.start(())

    async def stop() -> None:
        made.scan.stop()

    on_reactor(start)
    yield made
    on_reactor(stop)


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


def test_an_emptied_main_file_asks_for_no_restart(hosted: Hosted) -> None:
    """A restart would run nothing. Until the file is back, the node uses what it read at its start."""
    main = hosted.conf / "canal.properties"
    kept = main.read_text()
    hosted.write("a", ADDRESS)
    until(lambda: hosted.log == [("begin", "a")], what="the begin")
    main.write_text("")
    until(lambda: hosted.alarms() == [("", "restart")], what="the alarm")
    assert hosted.scan.alarms[0].text.startswith(f"{main} is empty; the node goes on with what it read at its start")
    assert hosted.scan.alarms[0].text.endswith(": put the file back")
    main.write_text(kept)
    until(lambda: not hosted.alarms(), what="its end")
    assert hosted.log == [("begin", "a")]


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
    until(lambda: hosted.log[2:] == [("end", "a"), ("begin", "a"), ("begin", "c")], what="the reload and the start")
    assert "'reason': 'changed'" in caplog.text
    kept.rename(main)
    until(lambda: ("end", "b") in hosted.log, what="the end of b")
    until(lambda: not hosted.alarms(), what="the end of the alarm")
    assert "'reason': 'gone'" in caplog.text
