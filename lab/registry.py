"""A schema registry for tests, in this process: an HTTP server with the parts of Confluent's interface that we use.

    POST /subjects/SUBJECT/versions    adds a schema to a subject; {"id": n}, the same n for an equal schema
    GET /schemas/ids/N                 {"schema": text}, which readers ask for
    GET /subjects                      the names of the subjects

Confluent's own registry is not in Maven Central, and needs a larger part of its platform to start. This one parses each
schema with fastavro, and judges no compatibility: `answers` makes it refuse.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

from fastavro import parse_schema

from lab.ports import LOOPBACK


class Registry:
    """The registry; a context manager.

    subjects: ids of the schemas of each subject, in order.
    answers: status and error text to refuse with, by subject; "" refuses the list of subjects.
    authorization: the header Authorization of each request but those for a schema.
    """

    def __init__(self) -> None:
        self.subjects: dict[str, list[int]] = {}
        self.answers: dict[str, tuple[int, str]] = {}
        self.authorization: list[str | None] = []
        self._schemas: list[str] = []
        self._turn = threading.Lock()
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, name="registry", daemon=True)

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://{LOOPBACK}:{self._server.server_port}"

    def schema(self, number: int) -> Any:
        """Return a schema by its id."""
        return json.loads(self._schemas[number - 1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _add(self, subject: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if subject in self.answers:
            return self._refused(subject)
        text = json.loads(body)["schema"]
        try:
            parse_schema(json.loads(text), _write_hint=False)
        except Exception as error:
            return 422, {"error_code": 42201, "message": f"Invalid schema: {error}"}
        with self._turn:
            if text not in self._schemas:
                self._schemas.append(text)
            number = self._schemas.index(text) + 1
            if number not in self.subjects.setdefault(subject, []):
                self.subjects[subject].append(number)
        return 200, {"id": number}

    def _list(self) -> tuple[int, Any]:
        return self._refused("") if "" in self.answers else (200, sorted(self.subjects))

    def _refused(self, subject: str) -> tuple[int, dict[str, Any]]:
        status, text = self.answers[subject]
        return status, {"error_code": status, "message": text}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                registry.authorization.append(self.headers["Authorization"])
                body = self.rfile.read(int(self.headers["Content-Length"]))
                parts = self.path.split("/")
                if len(parts) == 4 and (parts[1], parts[3]) == ("subjects", "versions"):
                    self._answer(*registry._add(unquote(parts[2]), body))
                else:
                    self._answer(404, {"error_code": 404, "message": "HTTP 404 Not Found"})

            def do_GET(self) -> None:
                if self.path == "/subjects":
                    registry.authorization.append(self.headers["Authorization"])
                    self._answer(*registry._list())
                    return
                number = self.path.removeprefix("/schemas/ids/")
                if number.isdecimal() and 0 < int(number) <= len(registry._schemas):
                    self._answer(200, {"schema": registry._schemas[int(number) - 1]})
                else:
                    self._answer(404, {"error_code": 40403, "message": "Schema not found"})

            def _answer(self, status: int, body: Any) -> None:
                raw = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                """Write no log."""

        return Handler
