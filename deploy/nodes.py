"""Nodes on this machine, found by their configuration directories, for the scripts in this directory.

systemctl starts and stops a node under systemd (deploy/systemd). Any other node is restarted with the same arguments,
working directory and environment.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from canal_ha.cli.access import access_from_environment
from canal_ha.cli.destination_node import at_home
from canal_ha.client.node_http import fetch
from canal_ha.config.load import load_usable
from canal_ha.errors import FileMissing, NodeUnreachable

T = TypeVar("T")

UNIT = re.compile(r"canal-ha@[^/\s]+\.service")
STOP_S = 60.0
START_S = 60.0


class Stuck(Exception):
    """An expected event did not happen in time; the message names what to check."""


@dataclass(frozen=True, slots=True)
class Process:
    """How a node was started. unit: its systemd unit; "" without one."""

    pid: int
    arguments: tuple[str, ...]
    directory: str
    environment: dict[str, str]
    unit: str


class LocalNode:
    """The node of one configuration directory, whether it runs or not. Raises ConfigError for a bad directory.

    A destination without a file keeps the node from nothing: it does not run before a restart either.
    """

    def __init__(self, conf: Path) -> None:
        config = load_usable(conf, (), {})
        for refused in config.refused:
            if not isinstance(refused.error, FileMissing):
                raise refused.error
        self.conf = conf.resolve()
        self.port = config.port
        self.session_s = config.zk_session_timeout_ms / 1000
        self.destinations = frozenset(instance.destination for instance in config.destinations if not instance.lazy)
        self._config = config
        self._log = self.conf.parent / config.log_dir / "canal" / "canal.log"
        self._last: Process | None = None

    def __str__(self) -> str:
        return f"{self.conf} (port {self.port})"

    def status(self) -> dict[str, Any] | None:
        """The node's status document; None while it does not answer."""
        try:
            return fetch(*at_home(self._config, access_from_environment()))
        except NodeUnreachable:
            return None

    def runs(self) -> frozenset[str] | None:
        """The destinations that run on the node; None while it does not answer."""
        status = self.status()
        return None if status is None else frozenset(entry["destination"] for entry in status["destinations"])

    def process(self) -> Process | None:
        """The node's process; None if there is none."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (found := self._is_ours(entry)) is not None:
                self._last = found
                return found
        return None

    def terminate(self) -> None:
        """Ask the node to stop: it writes its cursors and hands its destinations over."""
        process = self._running()
        if process.unit:
            subprocess.run(["systemctl", "stop", "--no-block", process.unit], check=True)
        else:
            os.kill(process.pid, signal.SIGTERM)

    def stop(self) -> None:
        """Stop the node in an orderly way and wait for its end. Raises Stuck."""
        self.terminate()
        self.wait_for_end(STOP_S)

    def kill(self) -> None:
        """Kill the node, like a crash."""
        os.kill(self._running().pid, signal.SIGKILL)

    def wait_for_end(self, seconds: float) -> None:
        """Wait until the process that was last seen has ended. Raises Stuck.

        A node answers while it stops, so an answer does not say that systemd has started it again.
        """
        last = self._last
        wait_for(
            lambda: (now := self.process()) is None or now != last,
            seconds,
            f"the end of {self}; its log is {self._log}",
        )

    def start(self) -> None:
        """Start the node as before, unless it runs, and wait until it answers. Raises Stuck."""
        if self.process() is None:
            if self._last is None:
                raise Stuck(f"it is unknown how {self} was started: start it once by hand or with systemd")
            if self._last.unit:
                subprocess.run(["systemctl", "start", self._last.unit], check=True)
            else:
                subprocess.Popen(
                    self._last.arguments,
                    cwd=self._last.directory,
                    env=self._last.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,  # the node has log files
                    start_new_session=True,
                )
        wait_for(lambda: self.status(), START_S, f"an answer of {self}; its log is {self._log}")

    def _running(self) -> Process:
        process = self.process()
        if process is None:
            raise Stuck(f"{self} does not run on this machine")
        return process

    def _is_ours(self, entry: Path) -> Process | None:
        try:
            arguments = tuple(part.decode() for part in (entry / "cmdline").read_bytes().split(b"\0")[:-1])
            if "server" not in arguments or not any(Path(part).name == "canal-ha" for part in arguments):
                return None
            directory = os.readlink(entry / "cwd")
            conf = arguments[arguments.index("--conf") + 1] if "--conf" in arguments else "conf"
            if Path(directory, conf).resolve() != self.conf:
                return None
            pairs = (entry / "environ").read_bytes().split(b"\0")[:-1]
            unit = UNIT.search((entry / "cgroup").read_text())
        except (OSError, IndexError):  # the process ended, or belongs to another user
            return None
        environment = {key.decode(): value.decode() for key, _, value in (pair.partition(b"=") for pair in pairs)}
        return Process(int(entry.name), arguments, directory, environment, unit.group() if unit else "")


def wait_for(look: Callable[[], T | None], seconds: float, what: str) -> float:
    """Wait until the condition returns a true value; return the seconds. Raises Stuck."""
    began = time.monotonic()
    while True:
        answer = look()
        if answer is not None and answer is not False:
            return time.monotonic() - began
        if time.monotonic() - began > seconds:
            raise Stuck(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.02)


def everything_runs(nodes: list[LocalNode]) -> bool:
    """Return whether each destination of these nodes runs on exactly one of them."""
    running = [name for node in nodes for name in node.runs() or ()]
    return sorted(running) == sorted(frozenset().union(*(node.destinations for node in nodes)))
