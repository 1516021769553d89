"""`canal-ha client` as a process, against our own server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from canal_ha.cli.client import address
from canal_ha.wire import scramble
from tests.server.harness import LOOPBACK, Served, entries_segment, transaction
from tests.waiting import until

RUN = (sys.executable, "-c", "from canal_ha.cli.main import main; main()", "client")


@pytest.fixture
def served() -> Iterator[Served]:
    with Served() as running:
        yield running


def begin(served: Served, *options: str) -> subprocess.Popen[str]:
    """Start a client process and wait for its connection. Clients before it must have ended."""
    known = len(served.feeds)
    where = ("--server", f"{LOOPBACK}:{served.port}", "--destination", "example", "--timeout", "50")
    process = subprocess.Popen([*RUN, *where, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: len(served.feeds) > known or served.service.counters.connections, what="the connection")
    return process


def subscribed(served: Served) -> None:
    until(lambda: bool(served.feeds) and served.service.counters.empty_batches["example"] > 0, what="the first GET")


def test_rows_as_json_and_a_clean_end(served: Served) -> None:
    """Every row is printed and acknowledged once; a row of a snapshot says so. SIGTERM ends the client with code 0."""
    with begin(served, "--format", "json") as process:
        subscribed(served)
        served.push(entries_segment(transaction(0, rows=2)))
        assert process.stdout
        rows = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [(row["table"], row["after"]["id"], row["row"]) for row in rows] == [("t", 0, 0), ("t", 1, 1)]
        served.push(entries_segment(transaction(1, snapshot="7")))
        read = json.loads(process.stdout.readline())
        assert (read["after"]["id"], read["type"], read["snapshot"]) == (1, "INSERT", "7")
        assert not any("snapshot" in row for row in rows)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
        assert process.stdout.read() == ""
    until(lambda: str(served.meta.cursor(1001)) == "mysql-bin.000001:2900", what="the cursor")


def test_an_interrupt_ends_a_get_without_limit(served: Served) -> None:
    """SIGINT ends a wait for a batch that never fills, with code 0."""
    with begin(served, "--timeout", "0") as process:
        until(lambda: bool(served.feeds), what="the stream")
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_max_rows_cuts_a_batch_without_acknowledging_it(served: Served) -> None:
    """After one row of two the batch comes again; after both rows it is acknowledged."""
    for wanted, acknowledged in ((1, False), (2, True)):
        with begin(served, "--format", "json", "--max-rows", str(wanted)) as process:
            if not acknowledged:
                subscribed(served)
                served.push(entries_segment(transaction(0, rows=2)))
            out, err = process.communicate(timeout=10)
            assert (process.returncode, len(out.splitlines()), err) == (0, wanted, "")
    until(lambda: str(served.meta.cursor(1001)) == "mysql-bin.000001:1900", what="the cursor")


def test_no_ack_leaves_everything(served: Served) -> None:
    """Two runs print the same rows. The console's form is the default, and --idle-exit ends each run."""
    shown: list[list[str]] = []
    for _ in range(2):
        with begin(served, "--no-ack", "--idle-exit", "3") as process:
            if not shown:
                subscribed(served)
                served.push(entries_segment(transaction(0)))
            out, err = process.communicate(timeout=60)
            assert (process.returncode, err) == (0, "")
            shown.append(
                [line for line in out.splitlines() if " : " in line and "delay" not in line and "*" not in line]
            )
    assert (
        shown[0] == shown[1] == ["id : 0    type=bigint(20)    update=true", "v : x    type=varchar(20)    update=true"]
    )


def test_a_lost_connection_is_one_line(served: Served) -> None:
    """The client prints the reason without a traceback and exits with code 1."""
    with begin(served, "--timeout", "0") as process:
        until(lambda: bool(served.feeds), what="the stream")
        threading.Timer(0.1, served.__exit__).start()
        out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("canal-ha: connection to 127.0.0.1:")
    served.__enter__()


def test_retry_survives_a_restart() -> None:
    """The same client continues with a new server on the same port."""
    with Served() as first:
        port = first.port
        process = begin(first, "--retry", "--format", "json", "--max-rows", "1")
        subscribed(first)
    with process, Served(port=port) as second:
        subscribed(second)
        second.push(entries_segment(transaction(0)))
        out, err = process.communicate(timeout=20)
    assert (process.returncode, len(out.splitlines())) == (0, 1)
    assert "retrying" in err


def test_passwords_come_from_a_file(tmp_path: Path) -> None:
    """The password is the first line of the file. A wrong password is refused."""
    file = tmp_path / "password"
    file.write_text("geheim\n")
    with Served(user="canal", passwd=scramble.secret_of("geheim").hex()) as served:
        where = ("--server", f"{LOOPBACK}:{served.port}", "--destination", "example", "--idle-exit", "0.1")
        for options, code in ((("--password-file", str(file)), 0), (("--password", "falsch"), 1)):
            done = subprocess.run(
                [*RUN, *where, "--user", "canal", *options], capture_output=True, text=True, timeout=20
            )
            assert done.returncode == code
            assert ("auth failed for user:canal" in done.stderr) == bool(code)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("h:1", "h", 1), ("h", "h", 11111), ("[::1]:5", "::1", 5), ("[::1]", "::1", 11111), ("10.0.0.1:9", "10.0.0.1", 9)],
)
def test_addresses(text: str, host: str, port: int) -> None:
    """The port may be omitted; an IPv6 address has brackets."""
    assert address(text) == (host, port)


@pytest.mark.parametrize("text", ["h:", "h:x", "h:0", "h:99999"])
def test_bad_addresses(text: str) -> None:
    """The error comes before any connection."""
    with pytest.raises(click.BadParameter):
        address(text)
