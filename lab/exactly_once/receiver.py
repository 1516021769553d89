"""An HTTP server that keeps the rows of a pipeline in a file, in a process that can be killed.

It is `python -m lab.exactly_once.receiver PORT FILE`. A request is on the disk before it is answered, so the sender
never repeats a request that was answered.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from lab.ports import LOOPBACK, free_port, listens
from lab.process import Process

ROOT = Path(__file__).resolve().parents[2]


class RowReceiver(Process):
    """The server, in a process of its own."""

    def __init__(self) -> None:
        super().__init__("receiver", free_port())
        self.file = self.directory / "requests.jsonl"
        self.url = f"http://{self.address}/rows"

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "lab.exactly_once.receiver", str(self.port), str(self.file)]

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(ROOT)}

    def ready(self) -> bool:
        return listens(self.port)

    def rows(self) -> Iterator[Any]:
        """Yield the rows in order of arrival, without those whose number came before (docs/how-to)."""
        seen: set[tuple[str, int]] = set()
        for text in self.file.read_text().splitlines() if self.file.exists() else ():
            request = json.loads(text)
            run, first, _ = request["key"].rsplit(".", 2)
            for number, line in enumerate(request["body"].encode().splitlines(), int(first)):
                if (run, number) not in seen:
                    seen.add((run, number))
                    yield json.loads(line)


def serve(port: int, file: Path) -> None:
    """Serve until the process is killed."""
    torn = file.exists() and not file.read_bytes().endswith(b"\n")
    with file.open("ab") as kept:
        if torn:
            kept.truncate(file.read_bytes().rfind(b"\n") + 1)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                request = {"key": self.headers["idempotency-key"], "body": body.decode()}
                kept.write(json.dumps(request).encode() + b"\n")
                kept.flush()
                os.fsync(kept.fileno())
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing."""

        HTTPServer((LOOPBACK, port), Handler).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
