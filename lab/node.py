"""A canal-ha node, started like a user does: `canal-ha server --conf DIR`, with its own configuration directory."""

import json
import socket
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from canal_ha.client.http_access import HttpAccess
from lab.mysql import CANAL, SqlServer
from lab.ports import LOOPBACK, free_port, listens
from lab.process import Process, StartFailed, spawn

PROGRAM = str(Path(sys.executable).with_name("canal-ha"))
"""The command that pip installed beside this Python."""


def follow(server: SqlServer, properties: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the instance.properties of a destination that reads from this server; `properties` override it."""
    return {
        "canal.instance.master.address": server.address,
        "canal.instance.dbUsername": CANAL,
        "canal.instance.dbPassword": CANAL,
        **(properties or {}),
    }


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key} = {value}\n" for key, value in properties.items()))


class Node(Process):
    """One node with its own conf/ and logs/ in a temporary directory, on free ports.

    start() waits until the node listens and runs the destinations in wait_for; the default is all destinations without
    ZooKeeper, and none in a cluster.

    destinations: name -> instance.properties; see follow().
    properties: additional lines of canal.properties.
    login: name and password for the status; None for a node without accounts.
    tls_ca: file of the authority of its certificate, if the status endpoint speaks TLS.
    zk_servers: hosts of a ZooKeeper or Ensemble; makes the node a member of a cluster.
    """

    def __init__(
        self,
        destinations: Mapping[str, Mapping[str, str]],
        *,
        zk_servers: str = "",
        properties: Mapping[str, str] | None = None,
        name: str = "node",
        environment: Mapping[str, str] | None = None,
        wait_for: Collection[str] | None = None,
        login: tuple[str, str] | None = None,
        tls_ca: str = "",
    ) -> None:
        super().__init__(name, free_port())
        self.conf = self.directory / "conf"
        self.admin_port = free_port()
        self.metrics_port = free_port()
        self._access = HttpAccess(*(login or ("", "")), tls_ca=tls_ca)
        self._has_status = "canal.admin.http.port" not in (properties or {})
        self._serves = (properties or {}).get("canal.serverMode", "tcp") == "tcp"
        self._environment = dict(environment or {})
        self._wait_for = frozenset((() if zk_servers else destinations) if wait_for is None else wait_for)
        _write(
            self.conf / "canal.properties",
            {
                "canal.ip": LOOPBACK,
                "canal.port": str(self.port),
                "canal.metrics.pull.port": str(self.metrics_port),
                "canal.admin.http.port": str(self.admin_port),
                "canal.zkServers": zk_servers,
                "canal.destinations": ",".join(destinations),
                **(properties or {}),
            },
        )
        for destination, settings in destinations.items():
            _write(self.conf / destination / "instance.properties", settings)

    def command(self) -> Sequence[str]:
        return [PROGRAM, "server", "--conf", str(self.conf)]

    def environment(self) -> Mapping[str, str]:
        return self._environment

    def ready(self) -> bool:
        listening = (not self._serves or listens(self.port)) and (not self._has_status or listens(self.admin_port))
        return listening and (not self._wait_for or self._wait_for <= self.running())

    def connect(self) -> socket.socket:
        """Return a new connection to the data port."""
        return socket.create_connection((LOOPBACK, self.port), 60)

    def status(self) -> dict[str, Any]:
        """Return the status document. Raises OSError while the node does not answer."""
        scheme = "https" if self._access.tls_ca else "http"
        address = f"{scheme}://{LOOPBACK}:{self.admin_port}/api/v1/status"
        with self._access.opener().open(address, timeout=10) as answer:
            status: dict[str, Any] = json.load(answer)
        return status

    def running(self) -> frozenset[str]:
        """Return the destinations that run on this node; empty while it does not answer."""
        try:
            return frozenset(destination["destination"] for destination in self.status()["destinations"])
        except OSError:
            return frozenset()

    def log_file(self, destination: str = "canal") -> str:
        """Return the text of logs/<destination>/<destination>.log, or of the node's own log; empty when missing."""
        path = self.directory / "logs" / destination / f"{destination}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def log_tail(self, lines: int = 25) -> str:
        """Return the end of its own log and of the log of each destination."""
        logs = sorted((self.directory / "logs").glob("*/*.log"))
        ends = [(log.name, log.read_text(errors="replace").splitlines()[-lines:]) for log in logs]
        return "\n".join([super().log_tail(lines), *(f"{name}:\n" + "\n".join(end) for name, end in ends)])


class Client:
    """A `canal-ha client` process on a pipe; as a context manager it ends with the block.

    arguments: further options of the command, such as --filter or --batch-size.
    """

    def __init__(
        self,
        server: str,
        destination: str,
        *arguments: str,
        output_format: str = "json",
        output: int | None = subprocess.PIPE,
    ) -> None:
        self.process = spawn(
            [
                PROGRAM,
                "client",
                "--server",
                server,
                "--destination",
                destination,
                "--format",
                output_format,
                *arguments,
            ],
            stdout=output,
            text=True,
            encoding="utf-8",
        )

    def rows(self) -> Iterable[dict[str, Any]]:
        """Yield the objects of --format json until the client ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def wait(self, timeout_s: float = 60.0) -> None:
        """Wait for the client to end by itself. Raises StartFailed if it fails."""
        code = self.process.wait(timeout_s)
        if code:
            raise StartFailed(f"canal-ha client ended with code {code}")

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
