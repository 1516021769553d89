"""A refusal of a node's data port, with what its status tells about the destination."""

from __future__ import annotations

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.node_answer import STATUS
from canal_ha.client.node_http import NO_LOGIN, get
from canal_ha.client.refusals import NOT_THERE
from canal_ha.errors import NodeUnreachable, ServerRefused
from canal_ha.model.excerpt import excerpt, printable, some
from canal_ha.model.near import did_you_mean

STATUS_PORT = 8089  # the default of canal.admin.http.port
TIMEOUT_S = 2.0
WHOLE_S = 4.0
MOST_BYTES = 1 << 20


def explained(error: ServerRefused, connector: SimpleConnector) -> ServerRefused:
    """Return a refusal with the destinations of the node, if it is about one that the node does not run."""
    if NOT_THERE not in str(error):
        return error
    destination, at = connector.identity.destination, f"{connector.host}:{connector.port}"
    known = run_by(connector.host, connector.port)
    if known is None:
        text = f"{at} does not run it: `canal-ha destination list` shows which node does"
    elif destination in known:
        text = f"{at} runs it now: run the command again"
    else:
        text = f"{at} does not run {excerpt(destination)}{printable(did_you_mean(destination, known))}; it runs "
        text += some(sorted(map(printable, known))) or "no destination"
    return ServerRefused(f"{error}: {text}", error.code)


def run_by(host: str, port: int) -> tuple[str, ...] | None:
    """Return the destinations that a node runs; None if its status is not open to everybody at the default port.

    host: of the node.
    port: of its data port, which the status has to confirm.
    """
    url = f"http://[{host}]:{STATUS_PORT}" if ":" in host else f"http://{host}:{STATUS_PORT}"
    try:
        document = get(url, "/api/v1/status", STATUS, NO_LOGIN, TIMEOUT_S, WHOLE_S, MOST_BYTES)
    except NodeUnreachable:
        return None
    if document["node"]["address"].rpartition(":")[2] != str(port):
        return None  # another node of that machine
    return tuple(each["destination"] for each in document["destinations"])
