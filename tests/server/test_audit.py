"""The audit: one JSON line for each thing that somebody did or was refused, in a file that stops nobody."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from canal_ha.accounts.account import Accounts
from canal_ha.accounts.parse import of_properties
from canal_ha.logs import ROTATE_FILES
from canal_ha.node.instance_log import InstanceLog
from canal_ha.server.audit import DEEDS, Actor, Audit
from canal_ha.server.audit_file import LINES_WAITING, AuditFile
from canal_ha.server.entrance import Entrance
from canal_ha.server.repeats import KEPT
from canal_ha.wire import scramble
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from tests.server.harness import Served, reactor
from tests.server.raw_client import RawClient
from tests.waiting import until

FIELDS = ["time", "action", "result", "account", "address", "certificate", "destination", "client_id", "details"]
PASSWORD = "geheim"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_line_has_the_same_fields() -> None:
    """The time is UTC with milliseconds; long texts of a peer are cut."""
    written: list[bytes] = []
    audit = Audit(Clock(), written.append, now=lambda: 1_700_000_000.25)
    audit.note("claim", destination="example", details={"epoch": 7})
    audit.refused("login", Actor("x" * 9999, "10.0.0.9"), "y" * 9999)
    first, second = map(json.loads, written)
    assert list(first) == FIELDS
    assert (first["time"], first["details"]) == ("2023-11-14T22:13:20.250Z", {"epoch": 7})
    assert (second["result"], len(second["account"]), len(second["details"]["reason"])) == ("refused", 500, 500)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in written)


def test_refusals_without_end_fill_no_disk() -> None:
    """An address gets a limited number of lines, and one that counts the others. Another address is not affected."""
    written: list[bytes] = []
    clock = Clock()
    audit = Audit(clock, written.append)
    for _ in range(10_000):
        audit.refused("login", Actor("", "10.0.0.9"), "auth failed")
    assert len(written) == 10
    audit.refused("login", Actor("", "10.0.0.10"), "auth failed")
    assert len(written) == 11
    clock.advance(1.0)
    left_out = json.loads(written[-1])
    assert (left_out["action"], left_out["address"]) == ("refusals left out", "10.0.0.9")
    assert left_out["details"] == {"count": 9990}
    audit.stop()


def test_a_client_that_subscribes_in_a_loop_fills_no_disk() -> None:
    """The first SUBSCRIBE has a line, and a minute later one line counts the same ones. Another filter has its own."""
    written: list[bytes] = []
    clock = Clock()
    audit = Audit(clock, written.append)
    who = Actor("reader", "10.0.0.9")
    for number in range(10_000):
        audit.client_did(
            "subscribe", who, destination="example", client_id=1, details={"filter": f"shop.t{number % 2}"}
        )
    assert [json.loads(line)["details"] for line in written] == [{"filter": "shop.t0"}, {"filter": "shop.t1"}]
    clock.advance(60.0)
    counted = [json.loads(line) for line in written[2:]]
    assert [(line["client_id"], line["details"]["repeated"]) for line in counted] == [(1, 4999), (1, 4999)]
    audit.client_did("subscribe", who, destination="example", client_id=1, details={"filter": "shop.t0"})
    assert json.loads(written[-1])["details"] == {"filter": "shop.t0"}
    audit.stop()
    assert not clock.getDelayedCalls()


def test_a_client_that_always_does_something_else_fills_no_disk() -> None:
    """Each filter has a line, up to a number for an address; one line counts the others. Long texts are cut at once."""
    written: list[bytes] = []
    clock = Clock()
    audit = Audit(clock, written.append)
    who = Actor("reader", "10.0.0.9")
    for number in range(3 * DEEDS.at_once):
        audit.client_did("subscribe", who, destination="example", client_id=1, details={"filter": f"t{number}"})
    assert len(written) == DEEDS.at_once
    audit.client_did("subscribe", Actor("reader", "10.0.0.10"), details={"filter": "x" * 9999})
    assert len(json.loads(written[-1])["details"]["filter"]) == 500
    clock.advance(1.0)
    left_out = json.loads(written[-1])
    assert (left_out["action"], left_out["details"]) == ("actions left out", {"count": 2 * DEEDS.at_once})
    audit.stop()


def test_dry_runs_in_a_loop_push_no_line_out_of_the_audit() -> None:
    """The same one is counted, as is an action that fails; different ones get a number of lines for an address."""
    written: list[bytes] = []
    clock = Clock()
    audit = Audit(clock, written.append)
    who = Actor("team-a", "10.0.0.9")
    asked: list[tuple[str, dict[str, object]]] = [
        ("ok", {"to": "latest", "dry_run": True}),
        ("failed", {"to": "latest", "error": "no cursor"}),
    ]
    for result, details in asked * 5000:
        audit.ordered("cursor", who, result, destination="team-a", details=details)
    assert [(line["result"], line["details"]) for line in map(json.loads, written)] == asked
    for number in range(2 * DEEDS.at_once):
        audit.ordered("cursor", who, "ok", destination="team-a", details={"to": str(number), "dry_run": True})
    assert len(written) == DEEDS.at_once
    clock.advance(60.0)
    ends: list[tuple[str, str, dict[str, object]]] = [
        (line["action"], line["result"], line["details"]) for line in map(json.loads, written[-3:])
    ]
    assert ("cursor", "failed", {**asked[1][1], "repeated": 4999}) in ends
    audit.stop()


def test_what_was_carried_out_has_a_line_whatever_an_account_tried_before() -> None:
    """Dry runs, failures and logins take nothing of its allowance, and neither do other accounts of its address."""
    written: list[bytes] = []
    clock = Clock()
    audit = Audit(clock, written.append)
    for number in range(2 * DEEDS.at_once):
        audit.client_did("login", Actor("team-a", "10.0.0.9"), details={"number": number})
        audit.ordered("pause", Actor("team-b", "10.0.0.9"), "ok", destination="team-b", details={"dry_run": False})
    del written[:]
    for _ in range(2):
        audit.ordered("pause", Actor("team-a", "10.0.0.9"), "ok", destination="team-a", details={"dry_run": False})
    assert [json.loads(line)["account"] for line in written] == ["team-a", "team-a"]
    clock.advance(1.0)
    left_out = {line["account"]: line["details"]["count"] for line in map(json.loads, written[2:])}
    assert left_out == {"": DEEDS.at_once, "team-b": DEEDS.at_once}
    audit.stop()
    assert not clock.getDelayedCalls()


def test_an_account_that_moves_its_cursor_in_a_loop_fills_no_disk() -> None:
    """The line of the move itself is limited too, by destination: those of other destinations stay."""
    written: list[bytes] = []
    clock = Clock()
    audit = Audit(clock, written.append)
    log = InstanceLog(audit)
    for number in range(2 * DEEDS.at_once):
        log.event("team-a", "cursor.moved", client_id=1, position=str(number))
    log.event("team-b", "cursor.moved", client_id=1, position="0")
    assert [json.loads(line)["destination"] for line in written] == ["team-a"] * DEEDS.at_once + ["team-b"]
    clock.advance(1.0)
    left_out = json.loads(written[-1])
    assert (left_out["action"], left_out["destination"]) == ("actions left out", "team-a")
    assert left_out["details"] == {"count": DEEDS.at_once}
    audit.stop()


def test_requests_from_all_addresses_of_a_network_leave_one_login() -> None:
    """Whoever has one address of an IPv6 network has all. Networks and addresses without end have a limit."""
    written: list[bytes] = []
    audit = Audit(Clock(), written.append)
    for number in range(5000):
        audit.http_login(Actor("reader", f"2001:db8::{number:x}"))
    assert len(written) == 1
    for number in range(3 * DEEDS.all_at_once):
        audit.http_login(Actor("reader", f"2001:db8:{number:x}::1"))
    assert len(written) <= DEEDS.all_at_once
    audit.stop()


@pytest.mark.parametrize("character", ["中", "\0", "\ud800", "\U0001f600", "x"])
def test_a_text_takes_few_bytes_whatever_its_characters(character: str) -> None:
    """Some characters take six bytes in JSON, so that lines of 500 of them filled the files."""
    written: list[bytes] = []
    audit = Audit(Clock(), written.append)
    audit.note("cursor", details={"to": character * 4000})
    assert len(written[0]) < 800
    cut = json.loads(written[0])["details"]["to"]
    assert cut.strip(character) == "…"
    assert len(cut) > 80


def test_a_client_that_comes_back_to_many_things_fills_no_disk() -> None:
    """A thing whose counting ends early has one more line. A thing without a line is not counted."""
    written: list[bytes] = []
    audit = Audit(Clock(), written.append)
    who = Actor("reader", "10.0.0.9")
    for number in range(0, 20_000, 2):
        for client_id in (number, number + 1, number, number + 1):
            audit.client_did("get", who, destination="example", client_id=client_id)
    audit.stop()
    assert len(written) <= 2 * DEEDS.at_once + 1


def test_long_texts_of_clients_are_not_kept() -> None:
    """A private read can name a set of transactions of megabytes."""
    audit = Audit(Clock(), lambda line: None)
    tracemalloc.start()
    for number in range(30):
        audit.client_did("read", Actor(), details={"start": f"gtid:{number}" + "x" * (1 << 20)})
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1 << 20
    audit.stop()


def test_a_client_that_reads_without_subscribing_has_a_line() -> None:
    """Its first GET is written down: a client id that exists needs no SUBSCRIBE, and one that only looks makes none."""
    written: list[bytes] = []
    with Served(entrance=Entrance(Accounts, reactor, Audit(reactor, written.append))) as served:
        with RawClient(served) as client:
            client.write(pb.SUBSCRIPTION, pb.Sub(filter="", tell_cursor=True, **client.names))
            assert client.refusal() == (0, "")
            for _ in range(3):
                client.get()
                client.fetched()
        with RawClient(served) as client:
            client.rollback()
            client.get()
            client.fetched()
    actions = [json.loads(line)["action"] for line in written]
    assert [action for action in actions if action != "login"] == ["subscribe", "get"]


def test_what_clients_repeat_takes_a_bounded_amount_of_memory() -> None:
    """Beyond so many different things the oldest ends early, with its count; nothing is left out."""
    written: list[bytes] = []
    audit = Audit(Clock(), written.append)
    for client_id in (0, 0, *range(1, KEPT + 1)):
        audit.client_did("subscribe", Actor("", f"10.0.0.{client_id % 4}"), destination="example", client_id=client_id)
    assert [json.loads(line)["details"] for line in written].count({"repeated": 1}) == 1
    assert len(written) == KEPT + 2
    audit.stop()
    assert len(written) == KEPT + 2


def test_a_session_leaves_its_lines(tmp_path: Path) -> None:
    """Login, subscription, private read and the refusals among them, with account, address and client id."""
    file = AuditFile(tmp_path / "audit" / "audit.log")
    file.start()
    accounts = Accounts(of_properties("canal", scramble.secret_of(PASSWORD).hex()))
    entrance = Entrance(lambda: accounts, reactor, Audit(reactor, file.write))
    with (
        Served(entrance=entrance, config={"clients_max": 1}) as served,
        RawClient(served, authenticate=False) as client,
    ):
        for password in ("wrong", PASSWORD):
            token = scramble.token(password, client.seed)
            client.write(pb.CLIENTAUTHENTICATION, pb.ClientAuth(username="canal", password=token))
        assert [client.refusal()[0] for _ in range(2)] == [400, 0]
        client.subscribe(r"shop\..*")
        assert client.refusal() == (0, "")
        client.write(pb.SUBSCRIPTION, pb.Sub(snapshot=["shop.orders", "shop.items"], **client.names))
        assert client.refusal() == (0, "")
        client.names["client_id"] = "7"
        client.subscribe()
        assert client.refusal()[0] == 429
        client.names["client_id"] = "1001"
        client.write(pb.UNSUBSCRIPTION, pb.Unsub(**client.names))
        assert client.refusal() == (0, "")
    file.close()
    found = lines(file.path)
    assert [(line["action"], line["result"], line["client_id"]) for line in found] == [
        ("login", "refused", None),
        ("login", "ok", None),
        ("subscribe", "ok", 1001),
        ("subscribe", "ok", 1001),
        ("subscribe", "refused", 7),
        ("unsubscribe", "ok", 1001),
    ]
    assert {(line["account"], line["address"]) for line in found} == {("canal", "127.0.0.1")}
    assert [line["destination"] for line in found] == ["", "", *["example"] * 4]
    assert found[2]["details"] == {"filter": r"shop\..*"}
    assert found[3]["details"] == {"filter": "", "snapshot": "shop.orders, shop.items"}
    assert "canal.instance.clients.max" in found[4]["details"]["reason"]


def test_the_file_is_private_and_rotates(tmp_path: Path) -> None:
    """Only the node's user can read it, also if it existed before. Old files keep their lines."""
    path = tmp_path / "audit" / "audit.log"
    path.parent.mkdir()
    path.write_text("")
    path.chmod(0o644)
    file = AuditFile(path, rotate_bytes=1000)
    file.start()
    for number in range(50):
        file.write(json.dumps({"number": number}).encode().ljust(99) + b"\n")
    file.close()
    files = sorted(path.parent.iterdir(), key=lambda each: -int(each.suffix[1:] if each.suffix != ".log" else 0))
    assert len(files) == 5
    assert [line["number"] for each in files for line in lines(each)] == list(range(50))
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}


def test_the_audit_goes_into_a_pipe_for_a_collector() -> None:
    """As /dev/stdout of a container is one. It is not rotated, its mode stays, and lines come complete."""
    reading, writing = os.pipe()
    mode = os.fstat(writing).st_mode
    file = AuditFile(Path(f"/dev/fd/{writing}"), rotate_bytes=10)
    file.start()
    for number in range(50):
        file.write(json.dumps({"number": number}).encode() + b"\n")
    file.close()
    assert (os.fstat(writing).st_mode, file.problem, file.unrotated) == (mode, "", "")
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        assert [json.loads(line)["number"] for line in pipe] == list(range(50))


def test_a_rotation_that_fails_costs_no_second_for_each_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The lines go into the file that is there, the log says so once, and the file rotates as soon as it can."""
    monkeypatch.setattr("canal_ha.logs.ROTATE_AGAIN_S", 0.5)
    path = tmp_path / "audit.log"
    oldest = tmp_path / f"audit.log.{ROTATE_FILES}"
    (oldest / "kept").mkdir(parents=True)  # no file can take its place
    for number in range(1, ROTATE_FILES):
        (tmp_path / f"audit.log.{number}").touch()
    file = AuditFile(path, rotate_bytes=1000)
    file.start()
    began = time.monotonic()
    for number in range(300):
        file.write(json.dumps({"number": number}).encode().ljust(99) + b"\n")
    until(lambda: path.exists() and len(lines(path)) == 300, what="all lines")
    assert time.monotonic() - began < 5
    assert oldest.name in file.unrotated
    assert not file.problem
    (oldest / "kept").rmdir()
    oldest.rmdir()
    time.sleep(0.6)
    file.write(b'{"number": 300}\n')
    until(lambda: not file.unrotated, what="the rotation")
    file.close()
    assert [line["number"] for each in (tmp_path / "audit.log.1", path) for line in lines(each)] == list(range(301))
    assert sum("audit.not_rotated" in record.getMessage() for record in caplog.records) == 1


def test_a_rotation_that_keeps_failing_loses_no_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt renamed the old files once more, until all were gone. `chattr +a` keeps the newest one's name."""
    monkeypatch.setattr("canal_ha.logs.ROTATE_AGAIN_S", 0.0)
    path = tmp_path / "audit.log"
    path.touch()
    rename = Path.replace

    def renamed(file: Path, target: Path) -> Path:
        if file == path:
            raise PermissionError(1, "Operation not permitted", str(path))
        return rename(file, target)

    monkeypatch.setattr(Path, "replace", renamed)
    old = [b'{"number": %d}\n' % number for number in range(1, ROTATE_FILES + 1)]
    for number, line in enumerate(old, 1):
        (tmp_path / f"audit.log.{number}").write_bytes(line)
    file = AuditFile(path, rotate_bytes=100)
    file.start()
    for _ in range(50):
        file.write(b"{}".ljust(99) + b"\n")
    file.close()
    assert file.unrotated
    assert [(tmp_path / f"audit.log.{number}").read_bytes() for number in range(2, ROTATE_FILES + 1)] == old[:-1]


def test_a_file_that_somebody_moved_away_is_begun_again(tmp_path: Path) -> None:
    """A rotation by another program is no failure of ours."""
    path = tmp_path / "audit.log"
    file = AuditFile(path, rotate_bytes=1000)
    file.start()
    file.write(b"{}".ljust(900) + b"\n")
    until(lambda: path.exists() and path.stat().st_size > 900, what="the first line")
    path.rename(tmp_path / "elsewhere")
    file.write(b"{}".ljust(900) + b"\n")
    file.close()
    assert len(lines(path)) == 1
    assert not file.unrotated


@pytest.mark.parametrize("gone", ["removed", "renamed", "replaced"])
def test_no_line_is_written_to_a_file_that_is_gone(tmp_path: Path, gone: str) -> None:
    """`rm`, or logrotate without `copytruncate`: the next line begins a new private file, or goes on in the new one."""
    path, elsewhere = tmp_path / "audit.log", tmp_path / "audit.log-20260131"
    file = AuditFile(path)
    file.start()
    file.write(b'{"number": 1}\n')
    until(lambda: path.exists() and path.stat().st_size > 0, what="the first line")
    if gone == "removed":
        path.unlink()
    else:
        path.rename(elsewhere)
    if gone == "replaced":
        path.touch()
    for number in (2, 3):
        file.write(b'{"number": %d}\n' % number)
    file.close()
    assert [line["number"] for line in lines(path)] == [2, 3]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert gone == "removed" or [line["number"] for line in lines(elsewhere)] == [1]


def test_a_line_that_a_full_disk_cut_does_not_spoil_the_first_line_after_a_restart(tmp_path: Path) -> None:
    """The node stopped before there was room again. The next one begins a line of its own."""
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"number": 1}\n{"num')
    file = AuditFile(path)
    file.start()
    file.write(b'{"number": 2}\n')
    file.close()
    assert path.read_bytes() == b'{"number": 1}\n{"num\n{"number": 2}\n'


def test_a_stop_lost_lines_although_there_was_room_again(tmp_path: Path) -> None:
    """The thread waited for its next attempt, which a stop left out."""
    path = tmp_path / "audit.log"
    path.mkdir()
    file = AuditFile(path)
    file.start()
    for number in (1, 2):
        file.write(b'{"number": %d}\n' % number)
    until(lambda: bool(file.problem), what="the first attempt")
    path.rmdir()
    file.close()
    assert [line["number"] for line in lines(path)] == [1, 2]


def test_a_file_that_takes_appends_alone_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `chattr +a` nobody can set its mode, which is right already. Every line was lost."""

    def refuse(_descriptor: int, _mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    path = tmp_path / "audit.log"
    path.touch(0o600)
    file = AuditFile(path)
    file.start()
    file.write(b'{"number": 1}\n')
    file.close()
    assert path.read_bytes() == b'{"number": 1}\n'


def test_a_file_that_others_can_read_stays_an_alarm_until_its_mode_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner is another user. The second attempt wrote into it, behind a line that was cut, and ended the alarm."""
    monkeypatch.setattr("canal_ha.server.audit_file.AGAIN_S", 0.01)
    tries: list[int] = []

    def refuse(_descriptor: int, mode: int) -> None:
        tries.append(mode)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"num')
    path.chmod(0o644)
    file = AuditFile(path)
    file.start()
    file.write(b'{"number": 2}\n')
    until(lambda: len(tries) > 2, seconds=5.0, what="the third attempt")
    assert "0644" in file.problem
    assert path.read_bytes() == b'{"num'
    path.chmod(0o600)
    until(lambda: not file.problem, what="the end of the problem")
    file.close()
    assert path.read_bytes() == b'{"num\n{"number": 2}\n'


@pytest.mark.parametrize("at_end", [False, True])
def test_a_file_whose_close_fails_is_not_closed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, at_end: bool
) -> None:
    """NFS tells a full quota at the close. The number is free then, and the second close hit the file that got it."""
    monkeypatch.setattr("canal_ha.server.audit_file.AGAIN_S", 0.01)
    path = tmp_path / "audit.log"
    file = AuditFile(path)
    file.start()
    file.write(b'{"number": 1}\n')
    until(lambda: path.exists() and path.stat().st_size > 0, what="the first line")
    closed: list[int] = []
    others: list[int] = []

    def close(descriptor: int, real: Callable[[int], None] = os.close) -> None:
        real(descriptor)
        if threading.current_thread().name != "audit":
            return
        closed.append(descriptor)
        if len(closed) == 1:
            others.append(os.open(tmp_path, os.O_RDONLY))  # gets the number
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "close", close)
    if not at_end:
        path.rename(tmp_path / "moved.log")
        file.write(b'{"number": 2}\n')
        until(path.exists, what="a new file")
    file.close()
    monkeypatch.undo()
    assert others == closed[:1]
    os.fstat(others[0])
    os.close(others[0])
    assert "Disk quota exceeded" in caplog.text
    assert path.read_bytes() == (b'{"number": 1}\n' if at_end else b'{"number": 2}\n')


def test_a_pipe_keeps_its_mode(tmp_path: Path) -> None:
    """What is no regular file belongs to somebody else: the node writes to it and leaves its mode."""
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o644)
    path.chmod(0o644)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = AuditFile(path)
    file.start()
    file.write(b"{}\n")
    file.close()
    assert os.read(reading, 10) == b"{}\n"
    os.close(reading)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_file_that_cannot_be_written_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`write` returns at once, lines beyond the queue are counted, and all that waited are written in the end."""
    monkeypatch.setattr("canal_ha.server.audit_file.AGAIN_S", 0.05)
    path = tmp_path / "audit" / "audit.log"
    path.mkdir(parents=True)  # a directory stands where the file should be
    file = AuditFile(path)
    file.start()
    for number in range(LINES_WAITING + 100):
        file.write(json.dumps({"number": number}).encode() + b"\n")
    until(lambda: bool(file.problem), what="the problem")
    assert 95 <= file.lost <= 100
    assert str(path) in file.problem
    path.rmdir()
    until(lambda: not file.problem, what="the end of the problem")
    file.close()
    assert [line["number"] for line in lines(path)] == list(range(LINES_WAITING + 100 - file.lost))


def test_lines_that_are_lost_at_the_stop_are_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk stays full. A stop with everything written says nothing."""
    for blocked, told in ((False, ""), (True, "'lines': 3")):
        path = tmp_path / str(blocked)
        if blocked:
            path.mkdir()
        file = AuditFile(path)
        file.start()
        for number in range(3):
            file.write(json.dumps({"number": number}).encode() + b"\n")
        until(lambda file=file, blocked=blocked: bool(file.problem) == blocked, what="the first try")  # type: ignore[misc]
        file.close()
        found = "".join(record.getMessage() for record in caplog.records if "not_written" in record.getMessage())
        assert bool(found) == blocked
        assert told in found
