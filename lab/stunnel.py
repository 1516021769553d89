"""stunnel as the side-car of a client that cannot speak TLS."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from lab.process import Process, StartFailed


class Stunnel(Process):
    """One stunnel process with one service for each node.

    services: name that the node's certificate must have -> where clients connect in plain text, and where the node
        listens; both host:port. The first one is on the process's port.
    settings: lines for all services, such as `CAfile = …`.
    """

    def __init__(self, services: Mapping[str, tuple[str, str]], settings: Sequence[str]) -> None:
        super().__init__("stunnel", int(next(iter(services.values()))[0].rpartition(":")[2]))
        self._services = services
        self._settings = settings

    def prepare(self) -> None:
        if shutil.which("stunnel4") is None:
            raise StartFailed("stunnel4 is missing; run: bash deploy/install.sh java")
        lines = ["foreground = yes", "pid =", "client = yes", "sslVersionMin = TLSv1.2", *self._settings]
        for name, (accept, connect) in self._services.items():
            lines += [f"[{name}]", f"accept = {accept}", f"connect = {connect}", f"checkHost = {name}"]
        (self.directory / "stunnel.conf").write_text("\n".join(lines) + "\n")

    def command(self) -> Sequence[str]:
        return ["stunnel4", str(self.directory / "stunnel.conf")]

    def ready(self) -> bool:
        return "Configuration successful" in self.log_tail()
