"""SchemaRegistry: a schema registry that speaks Confluent's HTTP interface.

Redirections are not followed and no proxy is used, because the password is for this address alone.

Source: Confluent documentation, Schema Registry API Reference, GET /subjects and
POST /subjects/(string: subject)/versions.
"""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import BaseHandler, HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from canal_ha.config.listeners import is_loopback
from canal_ha.errors import OptionInvalid, SinkRefused, TargetUnavailable
from canal_ha.model.excerpt import printable

_TYPE = "application/vnd.schemaregistry.v1+json"
_LARGEST_ANSWER = 1 << 20  # bytes
_SHOWN_CHARACTERS = 200
_SHOWN_BYTES = 4 * _SHOWN_CHARACTERS
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
            usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
        except ValueError:
            raise OptionInvalid(_WRONG_URL) from None
        if not usable:
            raise OptionInvalid(_WRONG_URL)
        if "@" in parts.netloc:
            raise OptionInvalid("schemaRegistry.url names a user: set user and password under schemaRegistry")
        if user and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            raise OptionInvalid("schemaRegistry.url: a password needs https, or everybody on the way can read it")
        self._url = url.rstrip("/")
        self.shown = printable(f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/"))
        self._what = f"canal: the schema registry at {self.shown}"
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": _TYPE, "Accept": _TYPE}
        if user:
            self._headers["Authorization"] = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
        handlers: list[BaseHandler] = [ProxyHandler({}), _NoRedirections()]
        if parts.scheme == "https":
            try:
                handlers.append(HTTPSHandler(context=ssl.create_default_context(cafile=ca or None)))
            except (OSError, ssl.SSLError) as error:
                raise OptionInvalid(f"schemaRegistry.ca = {ca!r}: {error}") from error
        self._opener = build_opener(*handlers)

    def register(self, subject: str, schema: str) -> int:
        """Return the id of an Avro schema, which is added to the subject unless it has it.

        subject: such as TOPIC-value.
        schema: its JSON text.
        Raises SinkRefused and TargetUnavailable.
        """
        request = Request(
            f"{self._url}/subjects/{quote(subject, safe='')}/versions",
            json.dumps({"schema": schema}).encode(),
            self._headers,
            method="POST",
        )
        try:
            found = json.loads(self._answer(request, f"a schema for {subject}"))["id"]
        except (ValueError, KeyError, TypeError) as error:
            raise SinkRefused(f"{self._what} sends no id for {subject}: is it a schema registry?") from error
        if not isinstance(found, int) or not 0 <= found < 1 << 32:
            raise SinkRefused(f"{self._what} sends no id for {subject}: is it a schema registry?")
        return found

    def check(self) -> None:
        """Ask for the subjects; the account needs no right to list them. Raises SinkRefused and TargetUnavailable."""
        request = Request(f"{self._url}/subjects", headers=self._headers)
        self._answer(request, "to list its subjects", enough=_FORBIDDEN)

    def _answer(self, request: Request, what: str, enough: int = 0) -> bytes:
        """Return the beginning of the answer to a request.

        request: what to send.
        what: what it asks for, for errors.
        enough: status that is not an error.
        Raises SinkRefused and TargetUnavailable.
        """
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                found: bytes = answer.read(_LARGEST_ANSWER)
                return found
        except HTTPError as error:
            with error:
                told = error.read(_SHOWN_BYTES)
            if error.code == enough:
                return told
            shown = printable(told.decode(errors="replace")[:_SHOWN_CHARACTERS])
            text = f"{self._what} refuses {what}: {error.code} {shown}"
            if error.code >= 500 or error.code in _NOT_NOW:
                raise TargetUnavailable(text) from error
            raise SinkRefused(f"{text}: {_ADVICE.get(error.code, 'check schemaRegistry')}") from error
        except (URLError, HTTPException, TimeoutError, OSError) as error:
            raise TargetUnavailable(f"{self._what} does not answer: {error}") from error


class _NoRedirections(HTTPRedirectHandler):
    """Leaves a redirection as the answer, which is refused like other answers without an id."""

    def redirect_request(self, *_: object) -> None:
        """Return None: the opener raises HTTPError."""
