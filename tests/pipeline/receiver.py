"""A real HTTP server that stores rows, and fails in the ways that receivers fail."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from lab.ports import LOOPBACK, free_port

PATH = "/rows?tenant=7"


@dataclass(frozen=True)
class Answer:
    """One scripted answer.

    status: of the answer; 0 closes the connection without one.
    stores: whether the receiver keeps the rows before it answers.
    delay_s: before the answer.
    dribble: send the header byte by byte, slowly.
    early: answer before the body is read, and close.
    """

    status: int = 200
    headers: Mapping[str, str] | None = None
    body: bytes = b"{}"
    stores: bool = False
    delay_s: float = 0.0
    dribble: bool = False
    early: bool = False


GOOD = Answer(stores=True)


@dataclass(frozen=True)
class Request:
    """A request as it came."""

    path: str
    headers: Message
    body: bytes
    at: float

    @property
    def key(self) -> str:
        """Its idempotency key."""
        return str(self.headers["idempotency-key"])

    @property
    def lines(self) -> list[str]:
        """Its rows as JSON."""
        if self.headers["content-type"] == "application/json":
            return [json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in json.loads(self.body)]
        return self.body.decode().split("\n")[:-1]


class Receiver:
    """The server. `script`: the next answers; then `otherwise` decides."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.script: deque[Answer] = deque()
        self.otherwise: Callable[[], Answer] = lambda: GOOD
        self.requests: list[Request] = []
        self.stored: list[Request] = []
        self.connections = 0
        self._turn = threading.Lock()
        port = free_port()
        self._server = ThreadingHTTPServer((LOOPBACK, port), self._handler())
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if context else 'http'}://{LOOPBACK}:{port}{PATH}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def rows(self) -> list[str]:
        """Return all stored lines, repeats too."""
        return [line for request in self.stored for line in request.lines]

    def distinct(self) -> list[str]:
        """Return the rows as a receiver keeps them that drops repeats, as the documentation describes it."""
        kept: dict[tuple[str, int], str] = {}
        keys: set[str] = set()
        for request in self.stored:
            if request.key in keys:
                continue
            keys.add(request.key)
            run, first, _ = request.key.rsplit(".", 2)
            for number, line in enumerate(request.lines, int(first)):
                assert kept.setdefault((run, number), line) == line, "a number of a run names two rows"
        return [kept[place] for place in sorted(kept)]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                receiver.connections += 1

            def do_POST(self) -> None:
                with receiver._turn:
                    answer = receiver.script.popleft() if receiver.script else receiver.otherwise()
                if not answer.early:
                    body = self.rfile.read(int(self.headers["content-length"]))
                    request = Request(self.path, self.headers, body, time.monotonic())
                    with receiver._turn:
                        receiver.requests.append(request)
                        if answer.stores:
                            receiver.stored.append(request)
                time.sleep(answer.delay_s)
                self.close_connection = answer.early or not answer.status
                if answer.status:
                    self._answer(answer)

            def _answer(self, answer: Answer) -> None:
                if answer.dribble:
                    for byte in b"HTTP/1.1 200 OK\r\nx-slow: " + b"s" * 100:
                        self.wfile.write(bytes([byte]))
                        time.sleep(0.05)
                self.send_response(answer.status)
                for name, value in (answer.headers or {}).items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:
                    self.close_connection = True  # the sender has gone

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing."""

        return Handler
