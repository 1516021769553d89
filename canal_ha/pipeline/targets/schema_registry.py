"""SchemaRegistry: a schema registry that speaks Confluent's HTTP interface.

Redirections are not followed and no proxy is used, because the password is for this address alone.

Source: Confluent documentation, Schema Registry API Reference, GET /subjects and
POST /subjects/(string: subject)/versions.
"""

from __future__ import annotations

import json
import re
import ssl
from base64 import b64encode
from contextlib import closing
from http.client import HTTPException
from urllib.parse import quote, urlsplit

from canal_ha.config.listeners import is_loopback
from canal_ha.config.pem_files import check_regular
from canal_ha.errors import OptionInvalid, SinkRefused, TargetUnavailable
from canal_ha.model.excerpt import excerpt, printable
from canal_ha.pipeline.targets.http_exchange import connected, exchange

_TYPE = "application/vnd.schemaregistry.v1+json"
_LARGEST_ANSWER = 1 << 20  # bytes
_SHOWN_CHARACTERS = 200
_NOT_NOW = frozenset({408, 429})
_FORBIDDEN = 403
_ADVICE = {409: "the table's columns changed in a way that its compatibility level forbids; allow it there"}
_WRONG_URL = "schemaRegistry.url: expected http://HOST:PORT or https://HOST:PORT"


class SchemaRegistry:
    """A registry. Any thread may call it. shown: its address, for messages."""

    def __init__(self, url: str, user: str = "", password: str = "", ca: str = "", timeout_s: float = 10.0) -> None:
        """Nothing is sent yet.

        url: http:// or https://.
        user, password: Basic authentication; "" for none.
        ca: PEM file with the authorities of its certificate; "" for those of the system.
        timeout_s: of a request.
        Raises OptionInvalid.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise OptionInvalid(_WRONG_URL) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or not re.fullmatch("[!-~]*", parts.path):
            raise OptionInvalid(_WRONG_URL)
        if "@" in parts.netloc:
            raise OptionInvalid("schemaRegistry.url names a user: set user and password under schemaRegistry")
        if user and parts.scheme == "http" and not is_loopback(parts.hostname):
            raise OptionInvalid("schemaRegistry.url: a password needs https, or everybody on the way can read it")
        self._host, self._port, self._path = parts.hostname, port, parts.path.rstrip("/")
        self.shown = printable(f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/"))
        self._what = f"canal: the schema registry at {self.shown}"
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": _TYPE, "Accept": _TYPE, "Connection": "close"}
        if user:
            self._headers["Authorization"] = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
        self._context: ssl.SSLContext | None = None
        if parts.scheme == "https":
            try:
                check_regular(ca)
                self._context = ssl.create_default_context(cafile=ca or None)
            except (OSError, ssl.SSLError) as error:
                raise OptionInvalid(f"schemaRegistry.ca = {ca!r}: {error}") from error

    def register(self, subject: str, schema: str) -> int:
        """Return the id of an Avro schema, which is added to the subject unless it has it.

        subject: such as TOPIC-value.
        schema: its JSON text.
        Raises SinkRefused and TargetUnavailable.
        """
        body = json.dumps({"schema": schema}).encode()
        answer = self._answer("POST", f"/subjects/{quote(subject, safe='')}/versions", body, f"a schema for {subject}")
        try:
            found = json.loads(answer)["id"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SinkRefused(f"{self._what} sends no id for {subject}: is it a schema registry?") from error
        if not isinstance(found, int) or not 0 <= found < 1 << 32:
            raise SinkRefused(f"{self._what} sends no id for {subject}: is it a schema registry?")
        return found

    def check(self) -> None:
        """Ask for the subjects; the account needs no right to list them. Raises SinkRefused and TargetUnavailable."""
        self._answer("GET", "/subjects", None, "to list its subjects", enough=_FORBIDDEN)

    def _answer(self, method: str, path: str, body: bytes | None, what: str, enough: int = 0) -> bytes:
        """Return the answer to a request.

        method: of the request.
        path: behind the registry's address.
        body: of the request.
        what: what it asks for, for errors.
        enough: status that is not an error.
        Raises SinkRefused and TargetUnavailable.
        """
        try:
            with closing(connected(self._host, self._port, self._timeout_s, self._context)) as connection:
                answer = exchange(connection, method, self._path + path, body, self._headers, _LARGEST_ANSWER)
        except (OSError, HTTPException) as error:
            told = printable(excerpt(str(error)))
            raise TargetUnavailable(f"{self._what} does not answer: {told}") from error
        good = 200 <= answer.status < 300
        if answer.status == enough or (good and not answer.cut):
            return answer.body
        shown = printable(answer.body.decode(errors="replace")[:_SHOWN_CHARACTERS])
        if good:
            raise TargetUnavailable(f"{self._what} does not end its answer: {shown}")
        text = f"{self._what} refuses {what}: {answer.status} {shown}"
        if answer.status >= 500 or answer.status in _NOT_NOW:
            raise TargetUnavailable(text)
        raise SinkRefused(f"{text}: {_ADVICE.get(answer.status, 'check schemaRegistry')}")
