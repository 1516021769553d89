"""Ask one node for its status document."""

from __future__ import annotations

import json
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError

from canal_ha.cli.access import HttpAccess
from canal_ha.errors import NodeUnreachable
from canal_ha.model.excerpt import printable

TIMEOUT_S = 5.0
DEFAULT_URL = "http://127.0.0.1:8089"


NO_LOGIN = HttpAccess()


def fetch(url: str, access: HttpAccess = NO_LOGIN) -> dict[str, Any]:
    """Fetch a node's status document. Raises NodeUnreachable with the next thing to check."""
    opener = access.opener()
    url = url if "://" in url else f"http://{url}"
    if not url.startswith(("http://", "https://")):
        raise NodeUnreachable(f"{url} is no address of a node: expected host:port, http:// or https://")
    address = url.rstrip("/") + "/api/v1/status"
    try:
        with opener.open(address, timeout=TIMEOUT_S) as answer:
            document = json.load(answer)
    except HTTPError as error:
        if error.code == 401 and not (access.user or access.token):
            raise NodeUnreachable(
                f"{address} asks for the login of an account: give --user and --password-file"
            ) from error
        if reason := refusal(error):
            raise NodeUnreachable(f"{address} refused the request: {reason}") from error
        raise NodeUnreachable(f"{address} answered {error.code} {error.reason}: is this a canal-ha node?") from error
    except (URLError, OSError, HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise NodeUnreachable(
            f"no node answers at {url} ({why}): is `canal-ha server` running there, and what is its"
            " canal.admin.http.port? (canal.log says admin.listening)"
        ) from error
    except ValueError as error:
        raise NodeUnreachable(f"{address} is not the status of a canal-ha node: {error}") from error
    if not isinstance(document, dict) or not {"node", "destinations"} <= document.keys():
        raise NodeUnreachable(f"{address} is not the status of a canal-ha node")
    return document


def refusal(error: HTTPError) -> str:
    """Return the reason in a node's answer; "" if the answer is not a node's."""
    try:
        return printable(str(json.load(error)["error"]))
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return ""
