"""HTTP: POSTs the rows of each commit to one address, in order, and again until it answers 2xx. At least once.

The progress is in a file, written after the last answer, so rows come again after a crash between an answer and the
file. canal_ha.pipeline.webhooks says how a receiver recognises them. Redirections are not followed and no proxy is
used, because rows and secrets are for this address alone.
"""

from __future__ import annotations

import random
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from select import select
from threading import Event, Lock
from typing import Any
from urllib.parse import urlsplit

from canal_ha.config.listeners import is_loopback
from canal_ha.config.pem_files import check_regular
from canal_ha.config.small_files import read_secret
from canal_ha.errors import SinkRefused, TargetUnavailable
from canal_ha.model.excerpt import excerpt, printable
from canal_ha.model.signature import secret_of, signature
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.fencing import lacks
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.progress_file import ProgressFiles, StoredProgress
from canal_ha.pipeline.targets.http_exchange import HttpAnswer, connected, exchange
from canal_ha.pipeline.webhooks import Cut, Delivery, asked_pause, may_succeed_later, own_pause
from canal_ha.steady_time import seconds
from canal_ha.version import VERSION

_ANSWER_BYTES = 1 << 16  # a longer answer ends the connection
_SHOWN_CHARACTERS = 200


def open_target(description: Description) -> HttpTarget:
    """Return the target of a pipeline. Raises SinkRefused."""
    target = description.target
    if target.mode != "events":
        raise SinkRefused(f"{description.file}: a target of type http has the mode events, not {target.mode}")
    return HttpTarget(target.options, Path(description.state))


class HttpTarget:
    """The target; see the module.

    options: the keys of http.schema.json.
    state: directory of the pipeline.
    Raises SinkRefused for an address or a file that cannot be used.
    """

    def __init__(self, options: Mapping[str, Any], state: Path) -> None:
        self._address = _Address(options)
        self._cut = Cut(
            options.get("format", "lines") == "array",
            int(options.get("batchRows", 1000)),
            int(options.get("batchBytes", 1 << 20)),
        )
        self._retry_for_s = float(options.get("retryForS", 30))
        self._progress = ProgressFiles(state / "http")
        self._senders: dict[str, _HttpSender] = {}
        self._turn = Lock()
        self._closed = Event()

    def check(self) -> str:
        """See PipelineTarget. Connects, and sends nothing."""
        try:
            with self._address.failures():
                self._address.connected().close()
        except TargetUnavailable as error:
            if isinstance(error.__cause__, ssl.SSLError):
                raise SinkRefused(str(error)) from error
            raise
        return f"events to {self._address.shown}, {'signed' if self._address.signs else 'without a signature'}"

    def progress(self, destination: str) -> Progress | None:
        """See PipelineTarget. There is nothing to take over."""
        return self.stored(destination)

    def stored(self, destination: str) -> Progress | None:
        """See PipelineTarget."""
        stored = self._progress.read(destination)
        return stored.progress if stored else None

    def commit(self, portion: Portion) -> None:
        """See PipelineTarget. A commit that is tried again leaves out the requests that were answered with 2xx."""
        with self._turn:
            if portion.destination not in self._senders:
                self._senders[portion.destination] = _HttpSender(self._address, self._retry_for_s, self._closed)
        sender = self._senders[portion.destination]
        stored = self._progress.read(portion.destination)
        if not self._lacks(stored, portion):
            return
        run = portion.progress.run
        sent = stored.rows if stored and stored.progress.run == run else 0
        sender.begin(portion.progress)
        for delivery in self._cut.deliveries((row.to_json() for row in portion.changes()), run, sent):
            sender.deliver(delivery, self._cut.content_type)
            sent = delivery.first + delivery.rows
        if self._lacks(self._progress.read(portion.destination), portion):
            self._progress.write(portion.destination, StoredProgress(portion.progress, sent))

    def _lacks(self, stored: StoredProgress | None, portion: Portion) -> bool:
        return lacks(stored.progress if stored else None, portion, f"http: {self._address.shown}")

    def close(self) -> None:
        """See PipelineTarget. A commit under way ends with TargetUnavailable at its next pause."""
        self._closed.set()
        for sender in self._senders.values():
            sender.close()


class _Address:
    """Where requests go, and what each has in its headers."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        try:
            parts = urlsplit(options["url"])
        except ValueError:
            raise SinkRefused("http: url: expected http(s)://HOST/PATH, percent-encoded") from None
        self.shown = printable(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")  # paths of hooks are secret
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            self._port = parts.port
        except ValueError as error:
            raise SinkRefused(f"http: url {self.shown}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or not re.fullmatch("[!-~]+", self._path):
            raise SinkRefused(f"http: url {self.shown}: expected http(s)://HOST/PATH, percent-encoded")
        if "@" in parts.netloc:
            raise SinkRefused(f"http: url {self.shown} names a user; put a token into a file, and name it as tokenFile")
        self._host = parts.hostname
        self._timeout_s = float(options.get("timeoutS", 30))
        own = {name.lower(): value for name, value in options.get("headers", {}).items()}
        self._headers = {"user-agent": f"canal-ha/{VERSION}", **own}
        self._token_file, self._secret_file = options.get("tokenFile", ""), options.get("secretFile", "")
        encrypted = parts.scheme == "https"
        if self._token_file and not encrypted and not is_loopback(self._host):
            raise SinkRefused(f"http: url {self.shown}: a token needs https, or everybody on the way can read it")
        self._context = _context(options) if encrypted else None
        self.signs = self._secret() is not None
        self._login()

    def connected(self) -> HTTPConnection:
        """Return an open connection. Raises OSError and HTTPException."""
        return connected(self._host, self._port, self._timeout_s, self._context)

    def post(self, connection: HTTPConnection, delivery: Delivery, content_type: str) -> HttpAnswer:
        """Send a request and return the answer. Raises OSError and HTTPException."""
        headers = {**self._headers, **self._login(), **self._named(delivery), "content-type": content_type}
        return exchange(connection, "POST", self._path, delivery.body, headers, _ANSWER_BYTES)

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turn the errors of a connection into TargetUnavailable."""
        try:
            yield
        except (OSError, HTTPException) as error:
            told = printable(excerpt(f"{type(error).__name__}: {error}"))
            raise TargetUnavailable(f"http: {self.shown}: {told}") from error

    def _named(self, delivery: Delivery) -> dict[str, str]:
        """Return the headers that name a request and sign it."""
        named = {"idempotency-key": delivery.key}
        secret = self._secret()
        if secret is not None:
            now = int(time.time())
            made = signature(secret, delivery.key, now, delivery.body)
            named |= {"webhook-id": delivery.key, "webhook-timestamp": str(now), "webhook-signature": made}
        return named

    def _secret(self) -> bytes | None:
        """Return the secret of the signatures. Files are read for each request: a new secret needs no restart."""
        if not self._secret_file:
            return None
        try:
            return secret_of(_text("secretFile", self._secret_file))
        except ValueError as error:
            raise SinkRefused(f"http: secretFile {self._secret_file}: {error}") from error

    def _login(self) -> dict[str, str]:
        """Return the header with the token."""
        if not self._token_file:
            return {}
        token = _text("tokenFile", self._token_file)
        if not re.fullmatch("[!-~]+", token):
            raise SinkRefused(f"http: tokenFile {self._token_file}: expected one line of ASCII characters")
        return {"authorization": f"Bearer {token}"}


class _HttpSender:
    """The requests of one destination, one after the other. One thread."""

    def __init__(self, address: _Address, retry_for_s: float, closed: Event) -> None:
        self._address = address
        self._retry_for_s = retry_for_s
        self._closed = closed
        self._connection: HTTPConnection | None = None
        self._commit: tuple[str, int] | None = None
        self._accepted: set[str] = set()  # keys of the commit's requests
        self._due = 0.0  # steady time before which the receiver wants no request

    def begin(self, progress: Progress) -> None:
        """Begin a commit, or try the same one again."""
        if self._commit != (progress.run, progress.seq):
            self._commit, self._accepted = (progress.run, progress.seq), set()

    def deliver(self, delivery: Delivery, content_type: str) -> None:
        """Send a request until it is accepted. Raises SinkRefused and TargetUnavailable."""
        if delivery.key in self._accepted:
            return
        end, problem, pause_s = seconds() + self._retry_for_s, "an earlier answer asked for it", 0.0
        for failures in count(1):
            pause_s = max(pause_s, self._due - seconds())
            if pause_s and seconds() + pause_s > end:
                raise TargetUnavailable(
                    f"http: {self._address.shown} does not take {_which(delivery)}, to be tried again in"
                    f" {pause_s:.1f} s: {problem}"
                )
            if self._closed.wait(pause_s):
                raise TargetUnavailable(f"http: {self._address.shown}: the pipeline is closing")
            try:
                with self._address.failures():
                    answer = self._address.post(self._open(), delivery, content_type)
                if 200 <= answer.status < 300:
                    self._accepted.add(delivery.key)
                    return
                said = printable(answer.body.decode(errors="replace")[:_SHOWN_CHARACTERS])
                reason = printable(answer.reason[:_SHOWN_CHARACTERS])
                problem = f"it answered {answer.status} {reason}: {said}"
                if not may_succeed_later(answer.status):
                    raise SinkRefused(f"http: {self._address.shown} refuses {_which(delivery)}; {problem}")
                self._due = seconds() + asked_pause(answer.headers["retry-after"], time.time())
            except TargetUnavailable as error:
                self.close()
                problem = str(error)
            pause_s = own_pause(failures, random.random())

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def _open(self) -> HTTPConnection:
        """Return an open connection: the last one, or a new one if the receiver has closed it."""
        kept = self._connection
        if kept is None or kept.sock is None or select([kept.sock], [], [], 0)[0]:
            self.close()
            kept = self._connection = self._address.connected()
        return kept


def _which(delivery: Delivery) -> str:
    return f"rows {delivery.first} to {delivery.first + delivery.rows - 1} of run {delivery.key.rsplit('.', 2)[0]}"


def _text(option: str, file: str) -> str:
    try:
        return read_secret(Path(file))
    except OSError as error:
        raise SinkRefused(f"http: {option} {file} cannot be read: {error.strerror}") from error


def _context(options: Mapping[str, Any]) -> ssl.SSLContext:
    ca, certificate, key = (options.get(name, "") for name in ("sslCa", "sslCert", "sslKey"))
    try:
        check_regular(ca, certificate, key)
        context = ssl.create_default_context(cafile=ca or None)
        if certificate:
            context.load_cert_chain(certificate, key or None, password="")  # else OpenSSL asks the terminal for one
    except (OSError, ValueError) as error:
        raise SinkRefused(
            f"http: sslCa {ca!r}, sslCert {certificate!r}, sslKey {key!r}: not PEM files that belong together: {error}"
        ) from error
    return context
