"""Processes of cluster clients. A thread reads the output of each and passes it to a Delivery."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import Link
from lab.cluster.delivery import Delivery
from lab.node import PROGRAM
from lab.process import spawn

CLIENT_ID = 1001
PIPE_BYTES = 1 << 20  # a batch fits as a whole, so that one read is one batch or several


COMMAND_LINE = (PROGRAM, "client", "--format", "json", "--batch-size", "200", "--timeout", "50")
"""The command line client, which acknowledges each batch before it asks for the next one."""


class Reader:
    """A process of a cluster client.

    name: unique.
    links: its links to ZooKeeper.
    errors: the file for its log lines.
    command: the program, which also takes --zk, --destination and --client-id, and prints JSON lines as the command
        line client does. A line {"confirmed": n} says that rows up to n are acknowledged.
    """

    def __init__(
        self,
        name: str,
        links: Sequence[Link],
        destination: str,
        delivery: Delivery,
        errors: Path,
        *,
        client_id: int = CLIENT_ID,
        command: Sequence[str] = COMMAND_LINE,
    ) -> None:
        self.name = name
        self.links = links
        self.errors = errors
        zk_servers = ",".join(link.address for link in links)
        with errors.open("ab") as log:
            self.process: subprocess.Popen[bytes] = spawn(
                [*command, "--zk", zk_servers, "--destination", destination, "--client-id", str(client_id)],
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        self._file = self.process.stdout.fileno()
        fcntl.fcntl(self._file, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._delivery = delivery
        self._thread = threading.Thread(target=self._read, name=name, daemon=True)
        self._thread.start()

    def kill(self) -> None:
        """Kill the process, as a crash does."""
        self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        rest = b""
        while data := os.read(self._file, PIPE_BYTES):
            at = time.monotonic()
            *lines, rest = (rest + data).split(b"\n")
            rows: list[dict[str, Any]] = []
            for line in lines:
                row = json.loads(line)
                if "confirmed" in row:
                    self._delivery.take(self.name, rows, at)
                    self._delivery.confirm(row["confirmed"], at)
                    rows = []
                elif row["type"] == "INSERT":
                    rows.append(row["after"])
            if rows:
                self._delivery.take(self.name, rows, at)
