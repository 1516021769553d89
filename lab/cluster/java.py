"""canal's own cluster client for Java, as one process."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

from lab.cluster.delivery import Delivery
from lab.mysql import cache_directory
from lab.process import StartFailed, spawn

PROGRAM = Path(__file__).parents[2] / "tests" / "peers" / "java" / "Follow.java"
CLIENT_ID = 1001  # the client has no way to change it


class JavaClient:
    """A JVM that compiles and runs Follow.java. Its rows go to the delivery, its log lines to `errors`.

    Its values are text, except the four numbers of a row's place.

    delivery: infers no acknowledgements from its rows.
    work_s: how long it takes for a batch with rows before it acknowledges it.
    hosts_file: the names that it knows, in the form of /etc/hosts; None: the system's names.
    """

    def __init__(
        self,
        zk_servers: str,
        destination: str,
        delivery: Delivery,
        errors: Path,
        name: str = "java",
        *,
        work_s: float = 0.0,
        hosts_file: Path | None = None,
    ) -> None:
        self.name = name
        self.errors = errors
        libraries = cache_directory() / "java" / "lib"
        if not libraries.exists():
            raise StartFailed(f"there is no {libraries}; run: bash deploy/install.sh java")
        with errors.open("ab") as log:
            self.process: subprocess.Popen[str] = spawn(
                [
                    *("java", "-Xmx256m", f"-Dlogback.configurationFile={PROGRAM.with_name('logback.xml')}"),
                    *([f"-Djdk.net.hosts.file={hosts_file}"] if hosts_file else []),
                    *("-cp", f"{libraries}/*", str(PROGRAM), zk_servers, destination, str(int(work_s * 1000))),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.subscribed = False
        self._delivery = delivery
        threading.Thread(target=self._read, name=name, daemon=True).start()

    def kill(self) -> None:
        """Kill the process, as a crash does."""
        self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("id="):
                row: dict[str, str | int] = dict(part.partition("=")[::2] for part in line.split())
                row |= {name: int(row[name]) for name in ("id", "txn", "nth", "size")}
                self._delivery.take(self.name, [row], time.monotonic())
            elif line == "subscribed\n":
                self.subscribed = True
