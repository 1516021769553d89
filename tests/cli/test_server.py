"""`canal-ha server` as its users start it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from canal_ha.client.node_http import fetch
from canal_ha.errors import NodeUnreachable
from lab.ports import free_port
from tests.cli.test_main import PROGRAM

START_S = 60.0  # CI runs these tests with low priority beside others


def conf(directory: Path, **properties: str) -> Path:
    """Write a conf directory without destinations, on free ports. properties: keys with underscores for dots."""
    path = directory / "conf"
    path.mkdir()
    settings = {
        "canal.ip": "127.0.0.1",
        "canal.port": str(free_port()),
        "canal.metrics.pull.port": str(free_port()),
        "canal.admin.http.port": str(free_port()),
        "canal.destinations": "",
        **{key.replace("_", "."): value for key, value in properties.items()},
    }
    (path / "canal.properties").write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    return path


def setting(path: Path, key: str) -> str:
    lines = (path / "canal.properties").read_text().splitlines()
    return next(line.partition(" = ")[2] for line in lines if line.startswith(key + " "))


@contextmanager
def node(path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a node, and yield it when it answers on its status port."""
    told = path.parent / "stderr"
    with told.open("w") as file:
        process = subprocess.Popen([PROGRAM, "server", "--conf", str(path), *arguments], stderr=file, text=True)
    try:
        deadline = time.monotonic() + START_S
        while True:
            try:
                fetch(f"http://127.0.0.1:{setting(path, 'canal.admin.http.port')}")
                break
            except NodeUnreachable:
                assert process.poll() is None, told.read_text()
                assert time.monotonic() < deadline, "the node did not answer in time"
                time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def refused(path: Path, *arguments: str) -> str:
    """Check that a node refuses to start, and return its message."""
    result = subprocess.run(
        [PROGRAM, "server", "--conf", str(path), *arguments], capture_output=True, text=True, timeout=START_S
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr
    return result.stderr


def test_a_bad_value_ends_it_with_one_message(tmp_path: Path) -> None:
    """The code is 2, one line has file, line, key, value and what was expected, and no log directory is made."""
    path = conf(tmp_path, canal_serverMode="rabbitMQ")
    expected = f"canal-ha: {path}/canal.properties:6: canal.serverMode = 'rabbitMQ': expected tcp or kafka."
    assert refused(path).startswith(expected)
    assert "a pipeline that sends rows over HTTP" in refused(path)
    assert not (tmp_path / "logs").exists()


def test_a_missing_directory(tmp_path: Path) -> None:
    """The message names the missing file."""
    assert f"{tmp_path}/gone/canal.properties" in refused(tmp_path / "gone")


def test_a_filter_that_is_no_regular_expression(tmp_path: Path) -> None:
    """A bad filter is refused at start, with its place and key."""
    path = conf(tmp_path, canal_destinations="example")
    address = ("--set", "canal.instance.master.address=127.0.0.1:1")
    message = refused(path, *address, "--set", "canal.instance.filter.regex=shop\\.(")
    assert "--set: canal.instance.filter.regex = 'shop" in message
    assert "canal.instance.filter.black.field" in refused(
        path, *address, "--set", "canal.instance.filter.black.field=x"
    )


def test_a_log_directory_that_cannot_be_made(tmp_path: Path) -> None:
    """A log directory that cannot be made is a configuration error, without a traceback."""
    (tmp_path / "logs").write_text("")
    assert "canal.log.dir" in refused(conf(tmp_path))


def test_a_node_starts_answers_and_stops(tmp_path: Path) -> None:
    """Status and metrics answer, canal.log has start, kernel and warnings, and SIGTERM ends the node with code 0."""
    path = conf(tmp_path, nonsense="1")
    with node(path, "--set", "canal.log.format=json") as process:
        port = setting(path, "canal.port")
        document = fetch(f"http://127.0.0.1:{setting(path, 'canal.admin.http.port')}")
        assert document["node"]["address"].endswith(f":{port}")
        assert document["destinations"] == []
        with urlopen(f"http://127.0.0.1:{setting(path, 'canal.metrics.pull.port')}/metrics", timeout=5) as answer:
            assert b"canal_build_info{" in answer.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_S) == 0
    lines = [json.loads(line) for line in (tmp_path / "logs/canal/canal.log").read_text().splitlines()]
    first, second = lines[:2]
    assert (first["event"], first["kernel"] in ("compiled", "interpreted")) == ("node.starting", True)
    assert second["event"] == "config.warning"
    assert "unknown key nonsense" in second["text"]


def test_a_taken_data_port_ends_it(tmp_path: Path) -> None:
    """A second node with the same data port exits and names the port.

    With another data port it runs beside the first.
    """
    path = conf(tmp_path)
    with node(path):
        result = subprocess.run(
            [PROGRAM, "server", "--conf", str(path)], capture_output=True, text=True, timeout=START_S
        )
        assert result.returncode != 0
        assert setting(path, "canal.port") in result.stderr
        beside = subprocess.Popen(
            [PROGRAM, "server", "--conf", str(path), "--set", f"canal.port={free_port()}"],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert beside.stderr is not None
            told = ""
            while "admin.listening" not in told or "metrics.port_taken" not in told:
                line = beside.stderr.readline()
                assert line, told
                told += line
            assert "admin.port_taken" in told
        finally:
            beside.kill()
            beside.communicate()


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_both_signals_stop_it(tmp_path: Path, signal_number: int) -> None:
    """SIGINT, as by Ctrl-C, stops a node in good order, as SIGTERM does."""
    with node(conf(tmp_path)) as process:
        process.send_signal(signal_number)
        assert process.wait(START_S) == 0
