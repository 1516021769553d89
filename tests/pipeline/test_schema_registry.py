"""Hold a schema registry to its address: its password goes there alone, and its answers are shown with care."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from canal_ha.errors import OptionInvalid, SinkRefused, TargetUnavailable
from canal_ha.pipeline.targets.schema_registry import SchemaRegistry
from tests.pipeline.raw_http import answering


class _Answering(HTTPServer):
    """Answers each request alike, and keeps what it gets. answer: status, headers, body."""

    def __init__(self, answer: tuple[int, dict[str, str], bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.got: list[tuple[str, str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: _Answering

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.got.append((self.command, self.path, self.headers["authorization"]))
        status, headers, body = self.server.answer
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _server(
    status: int = 200, headers: dict[str, str] | None = None, body: bytes = b'{"id": 7}'
) -> Iterator[_Answering]:
    with _Answering((status, headers or {}, body)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_a_schema_gets_the_id_that_the_registry_answers() -> None:
    """The password goes to the registry."""
    with _server() as registry:
        assert SchemaRegistry(registry.url, "canal", "s3cr3t").register("t-value", "{}") == 7
    assert registry.got == [("POST", "/subjects/t-value/versions", "Basic Y2FuYWw6czNjcjN0")]


def test_a_redirection_does_not_hand_the_password_to_another_server() -> None:
    """It is an answer without an id."""
    with _server() as other, _server(302, {"location": f"{other.url}/latest"}, b"") as moved:
        registry = SchemaRegistry(moved.url, "canal", "s3cr3t")
        with pytest.raises(SinkRefused, match="302"):
            registry.register("t-value", "{}")
    assert other.got == []


def test_a_proxy_of_the_environment_does_not_get_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry is asked itself."""
    with _server() as proxy, _server() as registry:
        monkeypatch.setenv("http_proxy", proxy.url)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert SchemaRegistry(registry.url, "canal", "s3cr3t").register("t-value", "{}") == 7
    assert proxy.got == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://registry.example:8081", "needs https"),
        ("http://canal:s3cr3t@127.0.0.1:8081", "names a user"),
        ("https://127.0.0.1:s3cr3t", "expected http"),
        ("https://[s3cr3t", "expected http"),
        ("ftp://s3cr3t", "expected http"),
    ],
)
def test_an_address_that_would_show_the_password_is_refused_without_showing_it(url: str, says: str) -> None:
    """Without https, everybody on the way reads the password; in a URL, every log."""
    with pytest.raises(OptionInvalid, match=says) as caught:
        SchemaRegistry(url, "canal", "s3cr3t")
    assert "s3cr3t" not in str(caught.value)


def test_an_answer_cannot_steer_the_terminal_or_fill_it() -> None:
    """Its beginning is shown, with escapes."""
    with _server(422, body=b"\x1b[2J" + b"x" * 1000) as registry, pytest.raises(SinkRefused) as caught:
        SchemaRegistry(registry.url).register("t-value", "{}")
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_an_error_whose_body_stalls_ended_the_pipeline() -> None:
    """With a traceback. It is a registry that does not answer."""
    head = b"HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\n"
    with answering([head]) as url, pytest.raises(TargetUnavailable, match=r"timed out|503"):
        SchemaRegistry(url, timeout_s=2.0).register("t-value", "{}")


def test_an_answer_of_deep_lists_ended_the_pipeline() -> None:
    """With a traceback. It has no id."""
    with _server(body=b"[" * 500_000) as registry, pytest.raises(SinkRefused, match="no id"):
        SchemaRegistry(registry.url).register("t-value", "{}")


LATE = "does not end its answer|no whole answer within 0.6 s"  # how much is here when the time ends depends on the load


def test_a_silent_registry_was_called_one_that_closes_its_connections() -> None:
    """The connection was closed here, when the time was over."""
    with answering([]) as url, pytest.raises(TargetUnavailable, match=r"answer: no whole answer within 0\.3 s"):
        SchemaRegistry(url, timeout_s=0.3).register("t-value", "{}")


def test_a_registry_that_sends_a_byte_now_and_then_held_the_pipeline() -> None:
    """Each byte came in time. The time-out limits the whole answer."""

    def slow() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"
        for _ in range(100):
            time.sleep(0.2)
            yield b" "

    begun = time.monotonic()
    with answering(slow()) as url, pytest.raises(TargetUnavailable, match=LATE):
        SchemaRegistry(url, timeout_s=0.6).register("t-value", "{}")
    assert time.monotonic() - begun < 10


def test_an_answer_that_is_no_http_cannot_steer_the_terminal() -> None:
    """Its first line is in the error, with escapes."""
    with answering([b"\x1b[2J\r\n"]) as url, pytest.raises(TargetUnavailable) as caught:
        SchemaRegistry(url).register("t-value", "{}")
    assert "\x1b" not in str(caught.value)
