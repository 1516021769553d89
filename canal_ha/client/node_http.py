"""Ask one node for its status document, or for an action. Anybody may have written the address, and listen there."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request

from canal_ha.client.http_access import HttpAccess
from canal_ha.client.http_deadline import AnswerLate
from canal_ha.client.node_answer import STATUS, check
from canal_ha.errors import CanalError, NodeUnreachable
from canal_ha.model.excerpt import printable

TIMEOUT_S = 5.0  # of silence
WHOLE_S = 20.0  # until the answer is complete
MOST_BYTES = 64 * 1024 * 1024
REFUSAL_BYTES = 64 * 1024
DEFAULT_URL = "http://127.0.0.1:8089"
NO_LOGIN = HttpAccess()


def fetch(
    url: str, access: HttpAccess = NO_LOGIN, path: str = "/api/v1/status", shape: Mapping[str, Any] = STATUS
) -> dict[str, Any]:
    """Fetch a document of a node, by default its status. Raises NodeUnreachable with the next thing to check.

    url: of the endpoint; http if it names no scheme.
    access: the login.
    path: of the document.
    shape: of the document; see node_answer.
    """
    return get(url, path, shape, access, TIMEOUT_S, WHOLE_S, MOST_BYTES)


def get(
    url: str,
    path: str,
    shape: Mapping[str, Any],
    access: HttpAccess,
    timeout_s: float,
    whole_s: float,
    most_bytes: int,
) -> dict[str, Any]:
    """Fetch a document of a node. Raises NodeUnreachable with the next thing to check.

    url: of the endpoint; http if it names no scheme.
    path: of the document, from `/` on.
    shape: of the document; see node_answer.
    access: the login.
    timeout_s: of silence.
    whole_s: until the answer is complete.
    most_bytes: of the answer.
    """
    until = time.monotonic() + whole_s
    url = _base(url)
    address = url + path
    try:
        with access.opener(until).open(address, timeout=min(timeout_s, whole_s)) as answer:
            body = answer.read(most_bytes + 1)
        if len(body) > most_bytes:
            raise ValueError(f"it has more than {most_bytes} bytes")
        document: dict[str, Any] = json.loads(body)
        check(document, shape)
    except HTTPError as error:
        if error.code == 401 and not (access.user or access.token):
            raise NodeUnreachable(
                f"{address} asks for the login of an account: give --user and --password-file"
            ) from error
        if reason := refusal(error):
            raise NodeUnreachable(f"{address} refused the request: {reason}") from error
        raise NodeUnreachable(f"{address} answered {error.code} {error.reason}: is this a canal-ha node?") from error
    except AnswerLate:
        raise NodeUnreachable(f"{url} has not answered completely within {whole_s:.0f} s") from None
    except (URLError, OSError, HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise NodeUnreachable(
            f"no node answers at {url} ({why}): is `canal-ha server` running there, and what is its"
            " canal.admin.http.port? (canal.log says admin.listening)"
        ) from error
    except (ValueError, RecursionError) as error:
        what = "not the status" if shape is STATUS else "no answer"
        raise NodeUnreachable(f"{address} is {what} of a canal-ha node: {error}") from error
    return document


def post(
    url: str,
    access: HttpAccess,
    destination: str,
    action: str,
    body: Any,
    shape: Mapping[str, Any],
    refused: type[CanalError],
    timeout_s: float,
) -> dict[str, Any]:
    """Ask a node for an action on a destination that it runs, and return the answer.

    url: of its status endpoint.
    access: the login.
    action: last part of the path.
    body: a JSON value.
    shape: of the answer; see node_answer.
    refused: raised with the node's reason if it refuses.
    timeout_s: for the answer.
    Raises NodeUnreachable.
    """
    path = path_of(destination, action)
    where = f": run this where the node that runs {destination} listens (canal.log says admin.listening)"
    return ask(url, access, path, body, shape, refused, timeout_s, where)


def ask(
    url: str,
    access: HttpAccess,
    path: str,
    body: Any,
    shape: Mapping[str, Any],
    refused: type[CanalError],
    timeout_s: float,
    where: str = "",
) -> dict[str, Any]:
    """Send a request to a node, and return the answer.

    url: of its status endpoint.
    access: the login.
    path: behind /api/v1/.
    body: a JSON value to POST; None to GET.
    shape: of the answer; see node_answer.
    refused: raised with the node's reason if it refuses.
    timeout_s: for the answer.
    where: what to do if no node answers.
    Raises NodeUnreachable.
    """
    url = _base(url)
    address = f"{url}/api/v1/{path}"
    data = None if body is None else json.dumps(body).encode()
    request = Request(address, data, {"content-type": "application/json"})
    try:
        with access.opener(time.monotonic() + timeout_s).open(request, timeout=timeout_s) as answer:
            found: dict[str, Any] = json.loads(answer.read(MOST_BYTES))
        check(found, shape)
    except HTTPError as error:
        raise refused(refusal(error) or f"{address} answered {error.code} {error.reason}") from error
    except (URLError, OSError, HTTPException) as error:
        raise NodeUnreachable(f"no node answers at {url} ({getattr(error, 'reason', None) or error}){where}") from error
    except (ValueError, RecursionError) as error:
        raise NodeUnreachable(f"{address} did not answer as a canal-ha node: {error}") from error
    return found


def _base(url: str) -> str:
    """Return an address with its scheme, which is http if it names none. Raises NodeUnreachable for another one."""
    url = url if "://" in url else f"http://{url}"
    if not url.startswith(("http://", "https://")):
        raise NodeUnreachable(f"{url} is no address of a node: expected host:port, http:// or https://")
    return url.rstrip("/")


def path_of(destination: str, part: str) -> str:
    """Return the path of a document or an action of a destination, behind /api/v1/. part: the last one."""
    return f"destinations/{quote(destination, safe='')}/{part}"


def refusal(error: HTTPError) -> str:
    """Return the reason in a node's answer; "" if the answer is not a node's."""
    try:
        return printable(str(json.loads(error.read(REFUSAL_BYTES))["error"]))
    except (ValueError, KeyError, TypeError, RecursionError, OSError, HTTPException):
        return ""
