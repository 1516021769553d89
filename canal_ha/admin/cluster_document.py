"""The state of the whole cluster as one JSON document: what the page and `GET /api/v1/cluster` show. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from canal_ha.admin.document import moment
from canal_ha.cluster.overview import ClientView, DestinationView, NodeView, Overview
from canal_ha.instance.alarms import MEANINGS

SEEN_SHAPE: Mapping[str, Any] = {
    "gone": [{"address": str, "since": float}],
    "changes": [{"destination": str, "before": str, "after": str, "at": float}],
}
CHANGES_SHOWN = 100
NOT_CONFIGURED = "not configured"
SAME_S = 30.0  # within it, a change that two nodes saw is one; nodes look every few seconds

Status = Mapping[str, Any]


def cluster_document(
    by: str,
    now: float,
    overview: Overview,
    statuses: Mapping[str, Status | str],
    seen: Mapping[str, Mapping[str, Any]],
    shown: Callable[[str], bool],
    problem: str = "",
) -> dict[str, Any]:
    """Return `{"by", "at", "problem", "nodes", "destinations", "alarms", "changes"}`.

    by: address of the node that answers.
    now: when it looked, s since 1970.
    overview: what ZooKeeper says.
    statuses: each node's status document, or why there is none, by address.
    seen: what nodes saw, with SEEN_SHAPE, by address.
    shown: whether the reader may see a destination.
    problem: why ZooKeeper does not answer; "" if it does.
    """
    documents = {address: status for address, status in statuses.items() if not isinstance(status, str)}
    views = [view for view in overview.destinations if shown(view.name)]
    found = {
        (address, each["destination"]): each
        for address, document in documents.items()
        for each in document["destinations"]
    }
    destinations = [
        _destination(view, statuses.get(view.runs_on), found.get((view.runs_on, view.name), {})) for view in views
    ]
    return {
        "by": by,
        "at": moment(now),
        "problem": problem,
        "nodes": [
            *(_node(node, statuses, views) for node in overview.nodes if not node.missing),
            *_gone(overview, seen),
        ],
        "destinations": destinations,
        "alarms": [*_alarms(documents), *_of_streams(destinations)],
        "changes": _changes(seen, shown),
    }


def alone(address: str, status: Status, paused: Iterable[str] = ()) -> Overview:
    """Return the overview of a node without ZooKeeper. status: its document; paused: its paused destinations."""
    views = {each["destination"]: DestinationView(each["destination"], address) for each in status["destinations"]}
    for name in paused:
        views.setdefault(name, DestinationView(name, paused=True))
    return Overview((NodeView(address),), tuple(views[name] for name in sorted(views)))


def _node(node: NodeView, statuses: Mapping[str, Status | str], views: Sequence[DestinationView]) -> dict[str, Any]:
    status = statuses.get(node.address)
    facts = status["node"] if isinstance(status, Mapping) else {}
    return {
        "address": node.address,
        "status_address": node.status_address,
        "state": "up" if facts else "silent",
        "since": facts.get("started", ""),
        "version": facts.get("version", ""),
        "kernel": facts.get("kernel", ""),
        "uptime_s": facts.get("uptime_s", -1.0),
        "runs": sum(view.runs_on == node.address for view in views),
        "stands_by": sum(node.address in view.stand_by for view in views),
        "problem": "" if facts else _reason(status, node),
    }


def _reason(status: Status | str | None, node: NodeView) -> str:
    if isinstance(status, str):
        return status
    return node.problem or "it has no status endpoint: a Java node, or canal.admin.http.port is negative"


def _gone(overview: Overview, seen: Mapping[str, Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Yield the nodes that are missing, or that some node saw and that are not alive.

    Each has the last time when somebody saw it go; "" if nobody did.
    """
    alive = {node.address for node in overview.nodes if not node.missing}
    since = {node.address: 0.0 for node in overview.nodes if node.missing}
    for each in (entry for part in seen.values() for entry in part["gone"]):
        since[each["address"]] = max(since.get(each["address"], 0.0), each["since"])
    for address in sorted(since.keys() - alive):
        yield {
            **_node(NodeView(address), {}, ()),
            "state": "gone",
            "since": moment(since[address]) if since[address] else "",
            "problem": "its session with ZooKeeper has ended",
        }


def _destination(view: DestinationView, status: Status | str | None, found: Status) -> dict[str, Any]:
    clients = _clients(view, found)
    return {
        "destination": view.name,
        "state": _state(view, status, found),
        "owner": view.runs_on,
        "stand_by": list(view.stand_by),
        "problem": view.problem or (status if isinstance(status, str) else ""),
        "source_address": found.get("source_address", ""),
        "source_role": found.get("source_role", ""),
        "source_version": found.get("source_version", ""),
        "source_error": found.get("source_error", ""),
        "seconds_behind": max((each["seconds_behind"] for each in clients), default=-1.0),
        "bytes_behind": max((each["bytes_behind"] for each in clients), default=-1),
        "queue": found.get("queue"),
        "clients": clients,
    }


def _state(view: DestinationView, status: Status | str | None, found: Status) -> str:
    if view.problem:
        return "unreadable"
    if view.released:
        return "released"
    if not view.runs_on:
        return _without_owner(view)
    if not found:
        return "unknown" if isinstance(status, str) or status is None else "starting"
    return "source error" if found["source_error"] else "running"


def _without_owner(view: DestinationView) -> str:
    if view.paused:
        return "paused"
    if view.lazy:
        return "lazy"
    return "no owner" if view.configured else NOT_CONFIGURED


def _clients(view: DestinationView, found: Status) -> list[dict[str, Any]]:
    known = {client.client_id: client for client in view.clients}
    streams = {stream["client_id"]: stream for stream in found.get("streams", ())}
    readers: dict[int, list[dict[str, Any]]] = {}
    for each in found.get("readers", ()):
        readers.setdefault(each["client_id"], []).append(
            {"account": each["account"], "address": each["address"], "private": each.get("private", False)}
        )
    return [
        _client(known.get(number, ClientView(number)), streams.get(number, {}), readers.get(number, []))
        for number in sorted(known.keys() | streams.keys() | readers.keys())
    ]


def _client(client: ClientView, stream: Status, readers: list[dict[str, Any]]) -> dict[str, Any]:
    kept = stream.get("cursor")
    cursor = f"{kept['journal']}:{kept['offset']}" if kept else str(client.cursor or "")
    return {
        "client_id": client.client_id,
        "filter": client.filter or stream.get("filter", ""),
        "connected": bool(readers) or bool(client.active),
        "waiting": stream.get("waiting", 0) > 0,
        "readers": readers,
        "active": client.active,
        "state": stream.get("state", ""),
        "error": stream.get("error", "") or client.problem,
        "cursor": cursor,
        "batches": len(stream.get("batches", ())),
        "oldest_unacked_s": stream.get("oldest_unacked_s", -1.0),
        "seconds_behind": stream.get("seconds_behind", -1.0),
        "bytes_behind": stream.get("bytes_behind", -1),
        "alarms": list(stream.get("alarms", ())),
        "snapshot": stream.get("snapshot"),
    }


def _alarms(documents: Mapping[str, Status]) -> Iterable[dict[str, Any]]:
    """Yield what each node says of itself and of its destinations."""
    for address, status in sorted(documents.items()):
        for alarm in status.get("alarms", ()):
            yield {
                "node": address,
                "destination": str(alarm.get("destination", "")),
                "client_id": None,
                "alarm": str(alarm.get("alarm", "")),
                "text": alarm["text"],
                "since": str(alarm.get("since", "")),
            }


def _of_streams(destinations: Sequence[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Yield the alarms of streams and failed snapshots."""
    for each in destinations:
        for client in each["clients"]:
            texts = [(alarm, MEANINGS.get(alarm, alarm)) for alarm in client["alarms"]]
            snapshot = client["snapshot"]
            if snapshot and snapshot["phase"] == "failed":
                texts.append(("snapshot", f"its snapshot failed: {snapshot['error']}"))
            for alarm, text in texts:
                yield {
                    "node": each["owner"],
                    "destination": each["destination"],
                    "client_id": client["client_id"],
                    "alarm": alarm,
                    "text": text,
                    "since": "",
                }


def _changes(seen: Mapping[str, Mapping[str, Any]], shown: Callable[[str], bool]) -> list[dict[str, Any]]:
    """Return the changes of owners, the newest first; of a change that several nodes saw, the first sight."""
    first: dict[tuple[str, str, str], float] = {}
    found = []
    sights = [(each["at"], address, each) for address, part in seen.items() for each in part["changes"]]
    for at, address, each in sorted(sights, key=lambda sight: sight[:2]):
        change = each["destination"], each["before"], each["after"]
        if not shown(each["destination"]) or at - first.get(change, -SAME_S) < SAME_S:
            continue
        first[change] = at
        found.append({**each, "at": moment(at), "seen_by": address})
    return found[: -CHANGES_SHOWN - 1 : -1]


def states(destinations: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Count the destinations of a document by state."""
    return Counter(each["state"] for each in destinations)
