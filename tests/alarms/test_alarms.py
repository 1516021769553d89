"""Notices: when they are told, and that they arrive at a real web server and a real SMTP server."""

from __future__ import annotations

import hmac
import json
import socketserver
import ssl
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from canal_ha.alarms import notice as notices
from canal_ha.alarms.delivery import WAITING_MOST, AlarmDelivery
from canal_ha.alarms.handlers import read_handlers
from canal_ha.alarms.mail import MailHandler
from canal_ha.alarms.notice import RUNBOOKS, Notice, Subject
from canal_ha.alarms.watch import QUIET_S, AlarmWatch
from canal_ha.alarms.webhook import WebhookHandler
from canal_ha.config import alarms as configuration
from canal_ha.errors import FileUnusable
from canal_ha.instance.alarms import MEANINGS
from canal_ha.node import lasting
from canal_ha.node.told_alarms import LOOK_S, ToldAlarms
from canal_ha.server.expiry import BEFORE_S
from canal_ha.source.server.tap_records import TAP
from lab.certificates import Authority
from tests.waiting import until

LAG = Subject("stream.lag", "example", 1001)
UNREADY = Subject("node.unready")
NOTICE = Notice(LAG, "10.0.0.1:11111", True, "it lags\ntoo far", 1_500_000_000.0)


def told(watch: AlarmWatch, now: float, *subjects: Subject) -> list[tuple[str, bool]]:
    """Return what is told at a moment."""
    found = watch.step(dict.fromkeys(subjects, "why"), now, 0.0)
    return [(each.subject.alarm, each.begins) for each in found]


def test_an_alarm_is_told_when_it_begins_and_when_it_is_over() -> None:
    """It is told once each."""
    watch = AlarmWatch("n")
    seen = [told(watch, 0, LAG), told(watch, 5, LAG), told(watch, 10), told(watch, 15)]
    assert seen == [[("stream.lag", True)], [], [("stream.lag", False)], []]


def test_one_failed_look_does_not_end_the_alarms(caplog: pytest.LogCaptureFixture) -> None:
    """The next look tells what is there. An error that repeats is logged once."""
    clock, asked = Clock(), 0
    sent: list[Notice] = []

    def look() -> list[tuple[Subject, str]]:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise ValueError("no figures")
        return [(LAG, "it lags")]

    class Kept:
        """A handler that keeps its notices."""

        def send(self, notice: Notice) -> None:
            """See AlarmHandler."""
            sent.append(notice)

    watched = ToldAlarms("n", clock, look, [AlarmDelivery("kept", Kept())])
    watched.start()
    clock.pump([LOOK_S] * 3)
    watched.stop()
    until(lambda: bool(sent))
    assert [each.subject for each in sent] == [LAG]
    assert caplog.text.count("alarm.watch_broken") == 1


def test_a_node_without_handlers_does_not_look() -> None:
    """The figures of all streams cost time, and nobody would get a notice."""
    clock = Clock()
    watched = ToldAlarms("n", clock, tuple, [])
    watched.start()
    assert not clock.getDelayedCalls()
    watched.stop()


def test_an_alarm_that_flutters_is_told_once() -> None:
    """If it lasts beyond the quiet time, or comes back after it, it is told again."""
    watch = AlarmWatch("n")
    first = [told(watch, 0, LAG), told(watch, 5)]
    assert first == [[("stream.lag", True)], [("stream.lag", False)]]
    assert [told(watch, at, *([LAG] if at % 10 == 0 else [])) for at in range(10, int(QUIET_S), 5)] == [[]] * 58
    assert told(watch, QUIET_S, LAG) == [("stream.lag", True)]


def test_a_start_or_a_fail_over_is_no_alarm() -> None:
    """A node that is not ready for some seconds is told to nobody, and neither is its end."""
    watch = AlarmWatch("n")
    assert [told(watch, at, UNREADY) for at in (0, 10, 29)] == [[], [], []]
    assert told(watch, 31) == []
    assert [told(watch, at, UNREADY) for at in (40, 69, 70)] == [[], [], [("node.unready", True)]]


def test_every_alarm_has_a_runbook_that_exists() -> None:
    """A new alarm needs a line in RUNBOOKS."""
    node = {*lasting._BEGINS.values(), lasting.LOGS, lasting.NO_RIGHTS, TAP, *BEFORE_S}
    files = (configuration.REFUSED, configuration.UNREADABLE, configuration.GONE, configuration.AUDIT)
    known = {f"stream.{name}" for name in MEANINGS} | {f"node.{name}" for name in node}
    known |= {f"configuration.{name}" for name in (*files, configuration.RESTART, configuration.CLOSED)}
    known.add(f"configuration.{configuration.CERTIFICATE}")
    assert known | {"stream.failed", "node.unready"} == set(RUNBOOKS)
    root = Path(notices.__file__).parents[2]
    for alarm in RUNBOOKS:
        assert (root / Notice(Subject(alarm), "n", True, "", 0.0).runbook).exists()


@contextmanager
def web_server(*codes: int) -> Iterator[tuple[str, list[tuple[Any, bytes]]]]:
    """Yield the address of a server that answers with these codes in turn, the last one again, and its requests."""
    requests: list[tuple[Any, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append((self.headers, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(codes[min(len(requests), len(codes)) - 1])
            self.send_header("location", "/elsewhere")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/a-secret-path", requests
        server.shutdown()


def test_a_webhook_gets_json_with_a_signature(tmp_path: Path) -> None:
    """The receiver can check it with the secret alone."""
    (tmp_path / "secret").write_text("whsec_c2VjcmV0\n")
    with web_server(204) as (url, requests):
        WebhookHandler(url=url, secret_file=str(tmp_path / "secret")).send(NOTICE)
    ((headers, body),) = requests
    assert json.loads(body) == {
        "alarm": "stream.lag", "destination": "example", "client_id": 1001, "node": "10.0.0.1:11111", "state": "begins",
        "text": "it lags\ntoo far", "at": "2017-07-14T02:40:00+00:00", "runbook": "docs/runbooks/lag-grows.md",
    }  # fmt: skip
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    assert b64decode(headers["webhook-signature"].removeprefix("v1,")) == hmac.digest(b"secret", signed, sha256)


@pytest.mark.parametrize("code", [302, 404, 500])
def test_an_error_of_a_webhook_shows_no_path(code: int) -> None:
    """The path of many services is the password. A redirection sends the notice to nobody else."""
    with web_server(code) as (url, requests), pytest.raises(OSError, match=rf"^127\.0\.0\.1: .*{code}") as caught:
        WebhookHandler(url=url).send(NOTICE)
    assert "a-secret-path" not in str(caught.value)
    assert len(requests) == 1


@pytest.mark.parametrize(("url", "reason"), [
    ("http://user:geheim@example.org/", "has a login"),
    ("https://geheim@example.org/", "has a login"),
    ("http://example.org:geheim/", "wrong host or port"),
    ("http://example.org:99999/geheim", "wrong host or port"),
    ("http://[geheim/", "wrong host or port"),
    ("http://example.org:0/geheim", "no http:// or https:// address"),
    ("http:///geheim", "no http:// or https:// address"),
    ("http://example.org/geheim me", "a space"),
    ("http://example.org/geheim\n", "a control character"),
    ("http://example.org/geheim\x7f", "a control character"),
    ("http://example.org/gehéim", "beyond ASCII"),
])  # fmt: skip
def test_an_address_that_cannot_be_used_is_refused_without_its_secret(tmp_path: Path, url: str, reason: str) -> None:
    """The first alarm used to find out, and its error in the log had the whole address."""
    (tmp_path / "alarms.toml").write_text(f"[handlers.a]\ntype = 'webhook'\nurl = {json.dumps(url)}\n", "utf-8")
    with pytest.raises(FileUnusable, match=reason) as caught:
        read_handlers(tmp_path / "alarms.toml")
    assert "geheim" not in str(caught.value)
    assert caught.value.__cause__ is None or "geheim" not in repr(caught.value.__cause__)


def test_an_answer_that_is_no_http_names_the_host_and_the_kind_of_error() -> None:
    """The text of such an error may have anything that the receiver or the address has."""

    class Babbles(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(b"a-secret-path\r\n\r\n")

    with socketserver.TCPServer(("127.0.0.1", 0), Babbles) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        handler = WebhookHandler(url=f"http://127.0.0.1:{server.server_address[1]}/a-secret-path")
        with pytest.raises(OSError, match=r"^127\.0\.0\.1: BadStatusLine$"):
            handler.send(NOTICE)


def test_a_notice_is_sent_again_and_a_slow_receiver_stops_nobody() -> None:
    """The second attempt succeeds. What a full queue cannot take is counted."""
    with web_server(500, 200) as (url, requests):
        delivery = AlarmDelivery("pager", WebhookHandler(url=url), (0.01,))
        delivery.start()
        delivery.put(NOTICE)
        until(lambda: len(requests) == 2)
        delivery.end()
        until(lambda: not delivery.running)
        assert delivery.lost == 0

    class Hangs:
        def send(self, notice: Notice) -> None:
            time.sleep(60)

    stuck = AlarmDelivery("stuck", Hangs())
    stuck.start()
    began = time.monotonic()
    for _ in range(WAITING_MOST + 10):
        stuck.put(NOTICE)
    assert time.monotonic() - began < 1
    assert stuck.lost >= 9


class SmtpServer(socketserver.StreamRequestHandler):
    """Takes one mail after STARTTLS and a login."""

    context: ssl.SSLContext
    seen: list[str]

    def handle(self) -> None:
        """Speak as much SMTP as smtplib needs."""
        self.say("220 here")
        while line := self.rfile.readline().decode().strip():
            self.seen.append(line)
            word = line.split()[0].upper()
            if word == "EHLO":
                self.say("250-here" if isinstance(self.connection, ssl.SSLSocket) else "250-here\r\n250-STARTTLS")
                self.say("250 AUTH PLAIN")
            elif word == "STARTTLS":
                self.say("220 go")
                self.connection = self.context.wrap_socket(self.connection, server_side=True)
                self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
            elif word == "DATA":
                self.say("354 go")
                while (line := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                    self.seen.append(line)
                self.say("250 taken")
            else:
                self.say("235 in" if word == "AUTH" else "221 bye" if word == "QUIT" else "250 ok")

    def say(self, text: str) -> None:
        self.wfile.write(text.encode() + b"\r\n")


@pytest.fixture
def smtp(tmp_path: Path) -> Iterator[tuple[int, list[str], Path]]:
    """Yield port, what the server has heard, and the file of its authority."""
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.sign("node"))
    seen: list[str] = []
    handler = type("Handler", (SmtpServer,), {"context": context, "seen": seen})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1], seen, Path(authority.file)
        server.shutdown()


def test_a_mail_goes_over_tls_with_a_login(smtp: tuple[int, list[str], Path], tmp_path: Path) -> None:
    """The login comes behind STARTTLS. Subject, text and runbook are in the mail."""
    port, seen, authority = smtp
    (tmp_path / "password").write_text("geheim\n")
    made = MailHandler(
        host="127.0.0.1", port=port, sender="canal@example.org", to=["a@example.org", "b@example.org"],
        user="canal", password_file=str(tmp_path / "password"), ca=str(authority),
    )  # fmt: skip
    made.send(NOTICE)
    words = [line.split()[0].upper() for line in seen if line]
    assert words.index("STARTTLS") < words.index("AUTH") < words.index("DATA")
    text = "\n".join(seen)
    assert "Subject: canal-ha: stream.lag begins: example, client 1001 on" in text
    assert "To: a@example.org, b@example.org" in text
    assert "docs/runbooks/lag-grows.md" in text


def test_a_mail_server_with_a_wrong_certificate_gets_neither_password_nor_mail(
    smtp: tuple[int, list[str], Path], tmp_path: Path
) -> None:
    """Without its authority the server is nobody."""
    (tmp_path / "password").write_text("geheim\n")
    made = MailHandler(
        host="127.0.0.1", port=smtp[0], sender="a@b", to=["c@d"], user="u", password_file=str(tmp_path / "password")
    )
    with pytest.raises(OSError, match="certificate verify failed"):
        made.send(NOTICE)
    assert not [line for line in smtp[1] if line.startswith(("AUTH", "DATA"))]


@pytest.mark.parametrize(("text", "reason"), [
    ("", "at least one"),
    ("x = 1", "and nothing else"),
    ("[handlers.a]", "handlers.a has no type"),
    ("[handlers.a]\ntype = 'pigeon'", "has the type pigeon; there are log, mail, webhook"),
    ("[handlers.a]\ntype = 'webhook'", "handlers.a cannot be used: .*url"),
    ("[handlers.a]\ntype = 'webhook'\nurl = 'ftp://x'", "no http:// or https://"),
    ("[handlers.a]\ntype = 'webhook'\nurl = 'http://x'\nsecret_file = '/nowhere'", "No such file"),
    ("[handlers.a]\ntype = 'webhook'\nurl = 'http://x'\nsecret_file = '/dev/null'", "not a regular file"),
    ("[handlers.a]\ntype = 'mail'\nhost = 'h'\nsender = 'a@b'\nto = 'c@d'", "to is a list"),
    ("[handlers.a]\ntype = 'mail'\nhost = 'h'\nsender = 'a@b'\nto = ['c@d']\ntls = 'none'\nuser = 'u'\n"
     "password_file = 'f'", "needs TLS"),
    ("[handlers", "cannot be read"),
])  # fmt: skip
def test_a_wrong_file_is_refused_with_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    """`check` and the start of a node say so, not the night of the first alarm."""
    (tmp_path / "alarms.toml").write_text(text)
    with pytest.raises(FileUnusable, match=f"alarms.toml.*{reason}"):
        read_handlers(tmp_path / "alarms.toml")


SECRETS = {
    "webhook": "type = 'webhook'\nurl = 'http://x'\nsecret_file",
    "mail": "type = 'mail'\nhost = 'h'\nsender = 'a@b'\nto = ['c@d']\nuser = 'u'\npassword_file",
}


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "it has no secret"), (b" \r\n", "it has no secret"), (b"g\xe4heim", "it is not UTF-8")],
)
def test_a_secret_file_that_is_empty_or_not_utf8_is_refused_without_its_content(
    tmp_path: Path, kind: str, content: bytes, reason: str
) -> None:
    """A login with an empty password would fail at the first alarm; the error names the file."""
    secret = tmp_path / "secret"
    secret.write_bytes(content)
    (tmp_path / "alarms.toml").write_text(f"[handlers.a]\n{SECRETS[kind]} = '{secret}'\n")
    with pytest.raises(FileUnusable) as refused:
        read_handlers(tmp_path / "alarms.toml")
    assert f"{reason}: '{secret}'" in str(refused.value)
    assert "0xe4" not in str(refused.value)


def test_handlers_of_other_packages_are_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package adds a type."""
    (tmp_path / "pigeon.py").write_text("class Pigeon:\n    def __init__(self, *, loft): self.loft = loft\n")
    package = tmp_path / "pigeon-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[canal_ha.alarm_handlers]\npigeon = pigeon:Pigeon\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "alarms.toml").write_text("[handlers.a]\ntype = 'pigeon'\nloft = 'north'\n[handlers.b]\ntype = 'log'\n")
    made: Any = read_handlers(tmp_path / "alarms.toml")
    assert (made["a"].loft, list(made)) == ("north", ["a", "b"])
