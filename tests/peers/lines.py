"""Rows as the peers print them: schema, table, type, `side name updated base64-of-value` for each column, with tabs."""

from __future__ import annotations

import signal
import subprocess
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab import StartFailed
from lab.mysql import cache_directory
from lab.process import spawn

HERE = Path(__file__).parent
SUBSCRIBED_S = 60.0
NO_LOGIN = ("", "")
"""Name and password of a client without an account."""


def lines(entry: pb.Entry) -> Iterator[str]:
    """Yield the lines of one entry."""
    if entry.entryType != pb.ROWDATA:
        return
    change = pb.RowChange.FromString(entry.storeValue)
    for row in change.rowDatas:
        parts = [entry.header.schemaName, entry.header.tableName, pb.EventType.Name(change.eventType)]
        for side, columns in (("before", row.beforeColumns), ("after", row.afterColumns)):
            for column in columns:
                value = "NULL" if column.isNull else b64encode(column.value.encode()).decode()
                parts.append(f"{side} {column.name} {int(column.updated)} {value}")
        yield "\t".join(parts)


class Peer:
    """A program that uses one of canal's own clients. It is subscribed after construction.

    Raises StartFailed with the program's errors if it ends before that, and kills a program that takes too long.
    """

    def __init__(self, command: list[str], errors: Path) -> None:
        with errors.open("wb") as log:
            self.process: subprocess.Popen[str] = spawn(command, stdout=subprocess.PIPE, stderr=log, text=True)
        limit = threading.Timer(SUBSCRIBED_S, self.process.kill)
        limit.start()
        try:
            assert self.process.stdout is not None
            for line in self.process.stdout:
                if line == "subscribed\n":
                    return
            if self.process.wait() == -signal.SIGKILL:
                raise StartFailed(f"{command} has not subscribed within {SUBSCRIBED_S:.0f} s")
            raise StartFailed(errors.read_text())
        finally:
            limit.cancel()

    def read(self, timeout_s: float = 60.0) -> list[str]:
        """Return all lines that it prints until it ends by itself."""
        text, _ = self.process.communicate(timeout=timeout_s)
        assert self.process.returncode == 0
        return text.splitlines()

    def kill(self) -> None:
        """Kill the program."""
        self.process.kill()
        self.process.wait()


def java(
    errors: Path,
    port: int,
    destination: str,
    tables: str,
    rows: int,
    size: int,
    login: tuple[str, str] = NO_LOGIN,
) -> Peer:
    """Start the simple connector of canal.client 1.1.8. Its client id is always 1001."""
    libraries = cache_directory() / "java" / "lib"
    if not libraries.exists():
        raise StartFailed(f"there is no {libraries}; run: bash deploy/install.sh java")
    program = HERE / "java" / "Read.java"
    settings = f"-Dlogback.configurationFile={program.with_name('logback.xml')}"
    command = ["java", "-Xmx256m", "-Dfile.encoding=UTF-8", settings, "-cp", f"{libraries}/*", str(program)]
    return Peer([*command, str(port), destination, tables, str(rows), str(size), *login], errors)


def python(
    errors: Path,
    port: int,
    destination: str,
    client_id: int,
    tables: str,
    rows: int,
    login: tuple[str, str] = NO_LOGIN,
) -> Peer:
    """Start canal-python 0.4 with the pure-Python protobuf."""
    program = cache_directory() / "canal-python" / "bin" / "python"
    if not program.exists():
        raise StartFailed(f"there is no {program}; run: bash deploy/install.sh peers")
    command = ["env", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python", str(program), "-u"]
    arguments = [str(port), destination, str(client_id), tables, str(rows), *login]
    return Peer([*command, str(HERE / "python" / "read.py"), *arguments], errors)


def golang(
    errors: Path,
    port: int,
    destination: str,
    client_id: int,
    tables: str,
    rows: int,
    login: tuple[str, str] = NO_LOGIN,
) -> Peer:
    """Start canal-go 1.1.2."""
    program = cache_directory() / "canal-go" / "read"
    if not program.exists():
        raise StartFailed(f"there is no {program}; run: bash deploy/install.sh go")
    return Peer([str(program), str(port), destination, str(client_id), tables, str(rows), *login], errors)
