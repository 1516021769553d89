"""Ask one node for its status document, or for an action. Anybody may have written the address, and listen there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPException
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request

from canal_ha.client.http_access import HttpAccess
from canal_ha.client.node_answer import STATUS, check
from canal_ha.errors import CanalError, NodeUnreachable
from canal_ha.model.excerpt import printable

TIMEOUT_S = 5.0  # of silence
WHOLE_S = 20.0  # until the answer is complete
MOST_BYTES = 64 * 1024 * 1024
REFUSAL_BYTES = 64 * 1024
DEFAULT_URL = "http://127.0.0.1:8089"
NO_LOGIN = HttpAccess()


def fetch(url: str, access: HttpAccess = NO_LOGIN) -> dict[str, Any]:
    """Fetch a node's status document, which has the shape STATUS. Raises NodeUnreachable with the next thing to check.

    url: of the endpoint; http if it names no scheme.
    access: the login.
    """
    answers: SimpleQueue[dict[str, Any] | Exception] = SimpleQueue()

    def work() -> None:
        try:
            answers.put(_fetch(url, access))
        except Exception as error:
            answers.put(error)

    Thread(target=work, name="status", daemon=True).start()  # a peer that sends a byte now and then holds it alone
    try:
        answer = answers.get(timeout=WHOLE_S)
    except Empty:
        raise NodeUnreachable(f"{url} has not answered completely within {WHOLE_S:.0f} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _fetch(url: str, access: HttpAccess) -> dict[str, Any]:
    opener = access.opener()
    url = url if "://" in url else f"http://{url}"
    if not url.startswith(("http://", "https://")):
        raise NodeUnreachable(f"{url} is no address of a node: expected host:port, http:// or https://")
    address = url.rstrip("/") + "/api/v1/status"
    try:
        with opener.open(address, timeout=TIMEOUT_S) as answer:
            body = answer.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        document: dict[str, Any] = json.loads(body)
        check(document, STATUS)
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
    except (ValueError, RecursionError) as error:
        raise NodeUnreachable(f"{address} is not the status of a canal-ha node: {error}") from error
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
    address = f"{url.rstrip('/')}/api/v1/destinations/{quote(destination, safe='')}/{action}"
    request = Request(address, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with access.opener().open(request, timeout=timeout_s) as answer:
            found: dict[str, Any] = json.loads(answer.read(MOST_BYTES))
        check(found, shape)
    except HTTPError as error:
        raise refused(refusal(error) or f"{address} answered {error.code} {error.reason}") from error
    except (URLError, OSError, HTTPException) as error:
        raise NodeUnreachable(
            f"no node answers at {url} ({getattr(error, 'reason', None) or error}): run this where the node"
            f" that runs {destination} listens (canal.log says admin.listening)"
        ) from error
    except (ValueError, RecursionError) as error:
        raise NodeUnreachable(f"{address} did not answer as a canal-ha node: {error}") from error
    return found


def refusal(error: HTTPError) -> str:
    """Return the reason in a node's answer; "" if the answer is not a node's."""
    try:
        return printable(str(json.loads(error.read(REFUSAL_BYTES))["error"]))
    except (ValueError, KeyError, TypeError, RecursionError, OSError, HTTPException):
        return ""
