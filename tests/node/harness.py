"""Nodes and clients as separate processes, started with `canal-ha`, for tests on real servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from tests.real import SqlServer
from tests.real.ports import LOOPBACK, free_port, listens
from tests.real.process import Process

T = TypeVar("T")
COMMAND = (sys.executable, "-m", "canal_ha.cli.main")


def until(look: Callable[[], T | None], *, seconds: float = 20.0, what: str = "it") -> T:
    """Ask again until the answer is neither None nor False; fail the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = look()
        if answer is not None and answer is not False:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {seconds} s")
        time.sleep(0.05)


class Node(Process):
    """One `canal-ha server` with its own configuration directory; its ports stay the same over restarts.

    canal: keys of canal.properties without `canal.`; set_: texts for --set. Destinations are added before start().
    """

    def __init__(self, *, name: str = "node", canal: dict[str, object] | None = None, set_: Sequence[str] = ()) -> None:
        super().__init__(name, free_port())
        self.conf = self.directory / "conf"
        self.logs = self.directory / "logs"
        self.conf.mkdir()
        self.http_port, self.metrics_port = free_port(), free_port()
        self.canal = dict(canal or {})
        self.set_ = tuple(set_)

    def destination(self, name: str, server: SqlServer, **instance: object) -> Node:
        """Configure one destination; keyword `filter_regex` is the key canal.instance.filter.regex."""
        lines = {
            "master.address": f"{LOOPBACK}:{server.port}",
            "dbUsername": "canal",
            "dbPassword": "canal",
            **{key.replace("_", "."): value for key, value in instance.items()},
        }
        folder = self.conf / name
        folder.mkdir(exist_ok=True)
        text = "".join(f"canal.instance.{key} = {value}\n" for key, value in lines.items())
        (folder / "instance.properties").write_text(text)
        return self

    def prepare(self) -> None:
        names = sorted(path.parent.name for path in self.conf.glob("*/instance.properties"))
        lines = {
            "ip": LOOPBACK,
            "port": self.port,
            "metrics.pull.port": self.metrics_port,
            "admin.http.port": self.http_port,
            "log.dir": self.logs,
            "destinations": ",".join(names),
            "conf.dir": self.conf,
            "file.data.dir": self.conf,
            "instance.global.spring.xml": "classpath:spring/default-instance.xml",
            **self.canal,
        }
        text = "".join(f"canal.{key} = {value}\n" for key, value in lines.items())
        (self.conf / "canal.properties").write_text(text)

    def command(self) -> Sequence[str]:
        sets = [word for pair in self.set_ for word in ("--set", pair)]
        return [*COMMAND, "server", "--conf", str(self.conf), *sets]

    def ready(self) -> bool:
        return listens(self.port)

    def logged(self, destination: str = "canal", file: str = "") -> str:
        """One log file as text, "" while it does not exist."""
        path = self.logs / destination / f"{file or destination}.log"
        return path.read_text() if path.exists() else ""

    def status(self) -> dict[str, Any]:
        """What the node says under /api/v1/status."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.http_port}/api/v1/status", timeout=5) as answer:
            parsed: dict[str, Any] = json.load(answer)
        return parsed


class JsonClient:
    """`canal-ha client --format json`, its rows read as they come."""

    def __init__(self, port: int, *options: str, destination: str = "example") -> None:
        where = ("--server", f"{LOOPBACK}:{port}", "--destination", destination)
        self.process = subprocess.Popen(
            [*COMMAND, "client", *where, "--format", "json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """One object a row until the client ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def end(self) -> str:
        """Stop it if it runs; what it said on standard error."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.stderr is not None
        text = self.process.stderr.read().decode()
        self.process.wait(10)
        return text
