"""The clients and nodes of the cluster demonstration, and the events in their logs."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from lab import Client, Node, StartFailed
from lab.node import PROGRAM
from lab.process import spawn, temporary_directory

_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) \[.*?\] \S+ +\S+ - (\S+) ?(.*)")
_KEY = re.compile(r'(\w+)=("[^"]*"|\S+)')


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a log. at: s since 1970."""

    at: float
    name: str
    keys: dict[str, str]


def events(log: Path) -> Iterator[Event]:
    """Yield the events of a log file, oldest first; none without a file."""
    if not log.exists():
        return
    for line in log.read_text(errors="replace").splitlines():
        if found := _LINE.match(line):
            moment, name, keys = found.groups()
            at = datetime.strptime(moment, "%Y-%m-%d %H:%M:%S.%f").timestamp()
            yield Event(at, name, {key: value.strip('"') for key, value in _KEY.findall(keys)})


class ClusterClient(Client):
    """A `canal-ha client --zk HOSTS` that logs to a file instead of the terminal."""

    def __init__(self, hosts: str, destination: str, *arguments: str, output: int | None) -> None:
        self.log = temporary_directory("client") / "client.log"
        command = [PROGRAM, "client", "--zk", hosts, "--destination", destination, *arguments]
        with self.log.open("wb") as log:
            self.process = spawn(command, stdout=output, stderr=log, text=True, encoding="utf-8")

    def connected(self, node: Node, since: float) -> float | None:
        """Return the time of its first connection to this node after `since`; None without one."""
        for event in events(self.log):
            if event.name == "client.connected" and event.keys.get("node") == node.address and event.at >= since:
                return event.at
        return None

    def log_tail(self) -> str:
        """Return the end of its log."""
        return "\n".join([f"--- client ({self.log})", *self.log.read_text(errors="replace").splitlines()[-25:]])

    def end(self) -> None:
        """Stop it with SIGTERM and wait. Raises StartFailed if it does not end in an orderly way."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20)
        if code:
            raise StartFailed(f"canal-ha client ended with code {code}\n{self.log_tail()}")


class Pair:
    """The two nodes of the cluster, A and B."""

    def __init__(self, destination: str, nodes: Sequence[Node]) -> None:
        self._destination = destination
        self._nodes = tuple(nodes)

    def running(self, timeout_s: float = 30.0) -> Node:
        """Return the node that runs the destination, waiting for one. Raises StartFailed."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for node in self._nodes:
                if node.alive() and self._destination in node.running():
                    return node
            time.sleep(0.05)
        raise StartFailed(f"no node runs {self._destination} after {timeout_s:.0f} s\n{self.log_tails()}")

    def wait_for(self, node: Node, event: str, since: float, timeout_s: float = 30.0) -> None:
        """Wait for an event in the node's log, not older than `since`. Raises StartFailed."""
        deadline = time.monotonic() + timeout_s
        while not any(told.name == event and told.at >= since for told in events(node.log)):
            if time.monotonic() > deadline:
                raise StartFailed(f"{node.name} did not log {event}\n{self.log_tails()}")
            time.sleep(0.05)

    def other(self, node: Node) -> Node:
        """Return the other node."""
        return self._nodes[1] if node is self._nodes[0] else self._nodes[0]

    def log_tails(self) -> str:
        """Return the ends of both logs."""
        return "\n".join(f"--- {node.name} ({node.log})\n{node.log_tail()}" for node in self._nodes)
