"""WebhookHandler: notices as POST requests with a JSON body."""

from __future__ import annotations

import time
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from canal_ha.alarms.notice import Notice
from canal_ha.config.small_files import read_secret_line
from canal_ha.model.signature import secret_of, signature

TIMEOUT_S = 10.0


class _NoRedirect(HTTPRedirectHandler):
    """Nobody but the named server gets the notice."""

    def redirect_request(self, *_: object) -> None:
        """Answer a redirection as an error."""


class WebhookHandler:
    """POSTs each notice; an answer of 2xx takes it."""

    def __init__(self, *, url: str, secret_file: str = "") -> None:
        """Make a handler. Raises ValueError, OSError.

        url: http or https, without a login. Its path and query may be secret: no error shows them.
        secret_file: file with a secret in its first line, with which requests are signed as Standard Webhooks say; ""
            for no signature.
        """
        self._host = _checked(url).hostname
        self._url = url
        self._secret = secret_of(read_secret_line(Path(secret_file))) if secret_file else b""

    def send(self, notice: Notice) -> None:
        """Send one notice. Raises OSError without its address."""
        body = notice.to_json()
        key, now = sha256(body).hexdigest()[:32], int(time.time())
        headers = {"content-type": "application/json", "webhook-id": key, "webhook-timestamp": str(now)}
        if self._secret:
            headers["webhook-signature"] = signature(self._secret, key, now, body)
        try:
            with build_opener(_NoRedirect).open(Request(self._url, body, headers), timeout=TIMEOUT_S):
                pass
        except (HTTPException, ValueError) as error:  # the texts of these may show the address
            raise OSError(f"{self._host}: {type(error).__name__}") from None
        except OSError as error:
            raise OSError(f"{self._host}: {error}") from None


def _checked(url: str) -> SplitResult:
    """Return the parts of an address. Raises ValueError without its text, which may be secret."""
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("url has a space, a control character or one beyond ASCII: write %20 and the like")
    try:
        parts = urlsplit(url)
        reachable = bool(parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    except ValueError:
        raise ValueError("url has a wrong host or port") from None
    if not reachable:
        raise ValueError("url is no http:// or https:// address with a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("url has a login before the host, which is not sent: sign notices with secret_file instead")
    return parts
