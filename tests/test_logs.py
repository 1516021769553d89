"""Log files as canal's operators know them."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from canal_ha import logs
from canal_ha.model.position import LogPosition

HEAD = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \[[^]]+\] "


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    """Remove our log handlers after the test."""
    yield
    logs.close()


class _Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def warning(self, event: str, **keys: object) -> None:
        self.lines.append((event, keys))


def test_an_event_that_data_repeats_has_ten_lines_a_minute() -> None:
    """The last one says so, the next one has the number of those left out, and other events have their own ten."""
    kept, now = _Lines(), [0.0]
    log = logs.Spared(kept, lambda: now[0])  # type: ignore[arg-type] # the part of a log that the test calls
    for number in range(1000):
        now[0] += 0.001
        log.warning("table.gone", table="x" * 5000, number=number)
    log.warning("other")
    assert [event for event, _ in kept.lines] == ["table.gone"] * 10 + ["other"]
    assert [("more_lines_in_s" in keys, len(str(keys.get("table")))) for _, keys in kept.lines[8:10]] == [
        (False, 500),
        (True, 500),
    ]
    now[0] += 60
    log.warning("table.gone", table="y")
    assert kept.lines[-1] == ("table.gone", {"table": "y", "left_out": 990})


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_the_nodes_events_go_to_canal_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An event with keys becomes one line in canal.log and on standard error, even if it names a destination."""
    logs.setup(tmp_path)
    logs.get("canal_ha.cluster.election").info("running.claimed", destination="example", node="10.0.0.1:11111")
    line = text(tmp_path / "canal/canal.log")
    expected = "INFO  canal_ha.cluster.election - running.claimed destination=example node=10.0.0.1:11111\n"
    assert re.fullmatch(HEAD + re.escape(expected), line)
    assert capsys.readouterr().err == line
    assert not (tmp_path / "example").exists()


def test_a_destinations_events_go_to_its_own_file(tmp_path: Path) -> None:
    """A logger bound to a destination writes only to logs/<destination>/<destination>.log."""
    logs.setup(tmp_path, console=False)
    logs.bound("a.b", client_id=1001).warning("source.lost")
    logs.bound("a").error("other")
    line = text(tmp_path / "a.b/a.b.log")
    assert re.fullmatch(HEAD + r"WARN  canal_ha\.destinations - source\.lost destination=a\.b client_id=1001\n", line)
    assert "other" in text(tmp_path / "a/a.log")
    assert text(tmp_path / "canal/canal.log") == ""


def test_the_line_of_a_cursor(tmp_path: Path) -> None:
    """meta.log has canal's exact line for each cursor that is written."""
    logs.setup(tmp_path, console=False)
    cursor = LogPosition("mysql-bin.000004", 491, 1507701904000, address="localhost")
    logs.cursor_persisted("example", 1001, cursor)
    line = text(tmp_path / "example/meta.log")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} - clientId:1001 cursor:\[mysql-bin\.000004,491,1507701904000\]"
        r" address\[localhost/127\.0\.0\.1:3306\]\n",
        line,
    )
    assert list((tmp_path / "example").iterdir()) == [tmp_path / "example/meta.log"]


@pytest.mark.parametrize(
    ("address", "ip", "expected"),
    [
        ("localhost", "", "[localhost/127.0.0.1:3306]"),
        ("10.0.0.7", "", "[10.0.0.7/10.0.0.7:3306]"),
        ("db1", "", "[db1/<unresolved>:3306]"),
        ("db1", "10.0.0.7", "[db1/10.0.0.7:3306]"),
    ],
)
def test_addresses_are_not_looked_up(address: str, ip: str, expected: str) -> None:
    """A name stays unresolved unless the caller knows its address: a look-up could block the reactor."""
    assert logs.cursor_line(1, LogPosition("x", 4, address=address), ip).endswith("address" + expected)


def test_json_lines(tmp_path: Path) -> None:
    """In the json format each line is an object with time, level, logger, thread, event and the keys."""
    logs.setup(tmp_path, "json", console=False)
    logs.bound("example").info("x", n=1, path=Path("/p"), text="a\nb")
    line = json.loads(text(tmp_path / "example/example.log"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", line.pop("time"))
    assert line == {
        "level": "info",
        "logger": "canal_ha.destinations",
        "thread": threading.current_thread().name,
        "event": "x",
        "n": 1,
        "path": "/p",
        "text": "a\nb",
        "destination": "example",
    }


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_passwords_are_not_written(tmp_path: Path, log_format: str) -> None:
    """The value of a key that looks like a secret is masked."""
    logs.setup(tmp_path, log_format, console=False)
    logs.get("canal_ha.x").info("connect", password="hush", dbPassword="hush", canal_passwd="hush", user="canal")
    line = text(tmp_path / "canal/canal.log")
    assert "hush" not in line
    assert "canal" in line


def test_a_value_cannot_forge_a_line(tmp_path: Path) -> None:
    """A value with line ends or blanks, such as a client's filter, is quoted."""
    logs.setup(tmp_path, console=False)
    logs.bound("example").info("subscribed", filter="x\n2017 forged", blank="a b", plain=r".*\..*", empty="")
    lines = text(tmp_path / "example/example.log").splitlines()
    assert len(lines) == 1
    assert lines[0].endswith(r'destination=example filter="x\n2017 forged" blank="a b" plain=.*\..* empty=""')


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_value_cannot_steer_the_terminal_that_shows_the_log(tmp_path: Path, log_format: str) -> None:
    """Control characters of any kind are escaped, such as a user name's; letters of any language stay."""
    logs.setup(tmp_path, log_format, console=False)
    logs.bound("example").info("refused", user="\x1b[2J\x9b2J\u202e\u2028", name="名前")
    line = text(tmp_path / "example/example.log").removesuffix("\n")
    assert line.isprintable()
    assert r"\u001b[2J\u009b2J\u202e\u2028" in line
    assert "名前" in line


def test_a_name_cannot_leave_the_directory(tmp_path: Path) -> None:
    """A destination whose name cannot be a directory name writes to canal.log."""
    logs.setup(tmp_path / "logs", console=False)
    logs.bound("../../up").info("odd")
    assert "odd" in text(tmp_path / "logs/canal/canal.log")
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_a_destination_called_canal_shares_the_file(tmp_path: Path) -> None:
    """A destination called canal writes to the same file as the node."""
    logs.setup(tmp_path, console=False)
    logs.get("canal_ha.x").info("one")
    logs.bound("canal").info("two")
    logs.get("canal_ha.x").info("three")
    assert [line.split(" - ")[1].split()[0] for line in text(tmp_path / "canal/canal.log").splitlines()] == [
        "one",
        "two",
        "three",
    ]


def test_files_rotate_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full file becomes .1 and a new one begins; no line is lost."""
    monkeypatch.setattr(logs, "ROTATE_BYTES", 300)
    logs.setup(tmp_path, console=False)
    for n in range(8):
        logs.bound("example").info("line", n=n)
    files = sorted((tmp_path / "example").iterdir())
    assert len(files) > 1
    assert sorted(int(n) for path in files for n in re.findall(r"n=(\d+)", text(path))) == list(range(8))


def test_a_file_that_cannot_be_rotated_loses_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows and is an alarm, until the rotation succeeds; a node whose log stands still tells nothing."""
    monkeypatch.setattr(logs, "ROTATE_BYTES", 300)
    monkeypatch.setattr(logs, "ROTATE_AGAIN_S", 0.2)
    logs.setup(tmp_path, console=False)
    path = tmp_path / "example" / "example.log"
    blocked = path.with_name(f"example.log.{logs.ROTATE_FILES}")
    (blocked / "kept").mkdir(parents=True)  # no file can take its place
    for number in range(1, logs.ROTATE_FILES):
        path.with_name(f"example.log.{number}").touch()
    for n in range(8):
        logs.bound("example").info("line", n=n)
    assert [int(n) for n in re.findall(r"n=(\d+)", text(path))] == list(range(8))
    assert "cannot be rotated" in logs.failures()[path].text
    (blocked / "kept").rmdir()
    blocked.rmdir()
    time.sleep(0.3)
    logs.bound("example").info("line", n=8)
    assert re.findall(r"n=(\d+)", text(path)) == ["8"]
    assert not logs.failures()


def test_libraries_are_heard_from_warnings_on(tmp_path: Path) -> None:
    """Warnings and errors of kazoo and Twisted reach canal.log with tracebacks; their info lines do not."""
    from twisted.logger import Logger

    logging.getLogger("kazoo").setLevel(logging.NOTSET)  # a command that ran in this process may have silenced it
    logs.setup(tmp_path, console=False)
    logging.getLogger("kazoo.client").info("chatter")
    logging.getLogger("kazoo.client").warning("lost %s", "it")
    Logger("x").info("chatter")
    try:
        raise ZeroDivisionError("inside")
    except ZeroDivisionError:
        Logger("x").failure("bad {what}", what="thing")
        logs.get("canal_ha.x").exception("worse")
    lines = text(tmp_path / "canal/canal.log")
    assert "chatter" not in lines
    assert "WARN  kazoo.client - lost it\n" in lines
    assert "twisted - bad thing\nTraceback" in lines
    assert "canal_ha.x - worse\nTraceback" in lines
    assert lines.count("ZeroDivisionError: inside") == 2


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    """Lines that several threads write to one file do not mix."""
    logs.setup(tmp_path, console=False)

    def write() -> None:
        for n in range(200):
            logs.bound("example").info("event", n=n, filler="x" * 100)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = text(tmp_path / "example/example.log").splitlines()
    assert len(lines) == 800
    assert all(
        re.fullmatch(HEAD + r"INFO  \S+ - event destination=example n=\d+ filler=x{100}", line) for line in lines
    )


def test_a_lost_disk_does_not_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that cannot be written raises nothing, so that replication goes on."""
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logs.setup(tmp_path, console=False)
    (tmp_path / "example").write_text("a file where the directory should be")
    logs.bound("example").info("lost")


def test_setup_names_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    """setup() raises OSError for a log directory that cannot be used, and names it."""
    (tmp_path / "logs").write_text("")
    with pytest.raises(OSError, match="logs"):
        logs.setup(tmp_path / "logs")
