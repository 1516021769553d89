"""The description of the JSON API, as OpenAPI 3.1. The schemas of types are made from the types themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from canal_ha.accounts import gate
from canal_ha.admin.actions import PLACES
from canal_ha.admin.additions import FORM_KEYS, TEXT_MOST, DestinationAdded, DestinationRemoved
from canal_ha.admin.cluster_document import NOT_CONFIGURED
from canal_ha.admin.cursors import PLACE_MOST
from canal_ha.config import keys
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.instance.status import InstanceStatus, PartStatus, QueueStatus, ReaderStatus, StreamStatus
from canal_ha.model.alarm import NodeAlarm
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import SnapshotAction
from canal_ha.model.unready import Unready
from canal_ha.version import VERSION

Schema = dict[str, Any]

_NAMES = {
    LogPosition: "Position",
    PartStatus: "Part",
    QueueStatus: "Queue",
    ReaderStatus: "Reader",
    StreamStatus: "Stream",
    InstanceStatus: "Destination",
}
_PLAIN: Mapping[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
}
CLIENT_ID: Schema = {"type": "integer", "minimum": -(2**15), "maximum": 2**15 - 1}
TEXT, WHOLE, NUMBER, FLAG = (_PLAIN[kind] for kind in (str, int, float, bool))


@cache
def openapi() -> Schema:
    """Return the document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "canal-ha",
            "version": VERSION,
            "description": "Status of a canal-ha cluster, and actions on its destinations. With accounts, each request"
            " needs a login. Actions need the role admin, and never take the cookie of the page.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"basic": []}, {"bearer": []}, {}],
        "paths": {
            "/api/v1/status": _get(gate.STATUS, "What runs on this node", "Status"),
            "/api/v1/cluster": _get(gate.CLUSTER, "The whole cluster, as the page shows it", "Cluster"),
            "/api/v1/seen": _get(gate.SEEN, "Nodes that this node saw go, and owners that it saw change", "Seen"),
            "/api/v1/log": _get(gate.NODE_LOG, "The end of the node's log file", "Log"),
            "/api/v1/openapi.json": _get(gate.OPENAPI, "This document", None),
            "/api/v1/config": _get(gate.CONFIGURATION, "The configuration of this node that is in use", None),
            "/api/v1/destinations/{destination}/config": _of_destination(
                _get(gate.DESTINATION_CONFIGURATION, "The configuration of a destination that is in use", None)
            ),
            "/api/v1/destinations/{destination}/lag": _of_destination(
                _get(gate.LAG, "The lag of each stream, a sample every 15 s, of an hour at most", "Lag")
            ),
            "/api/v1/destinations/{destination}/log": _of_destination(
                _get(gate.LOG, "The end of the destination's log file on this node", "Log")
            ),
            "/api/v1/destinations/{destination}/tables": _of_destination(
                _get(
                    gate.TABLES,
                    "The names of the source's tables, or the definition of one",
                    "Tables",
                    [{"name": "table", "in": "query", "schema": TEXT, "description": "schema.table"}],
                )
            ),
            "/api/v1/destinations/{destination}/source": _of_destination(
                _post(gate.SWITCH, "Read from the other server", "SwitchRequest", "SwitchAnswer")
            ),
            "/api/v1/destinations/{destination}/snapshot": _of_destination(
                _post(gate.SNAPSHOT, "Start, change or end a snapshot", "SnapshotRequest", "SnapshotAnswer")
            ),
            "/api/v1/destinations/{destination}/cursor": _of_destination(
                _post(gate.CURSOR, "Move or delete the cursor of a client", "CursorRequest", "CursorAnswer")
            ),
            "/api/v1/destinations": _get(
                gate.DESTINATIONS, "Where every destination runs", "Placements", codes=("409",)
            ),
            "/api/v1/destinations/{destination}/move": _of_destination(
                _post(gate.MOVE, "Hand the destination to another node", "MoveRequest", "MoveAnswer")
            ),
            "/api/v1/destinations/{destination}/pause": _of_destination(
                _post(gate.PAUSE, "Keep the destination stopped on all nodes", "PlacementRequest", "PauseAnswer")
            ),
            "/api/v1/destinations/{destination}/resume": _of_destination(
                _post(gate.RESUME, "Let a paused destination run again", "PlacementRequest", "ResumeAnswer")
            ),
            "/api/v1/destinations/{destination}/add": _of_destination(
                _post(gate.ADD, "Add a destination to this node alone", "AddRequest", "AddAnswer")
            ),
            "/api/v1/destinations/{destination}/remove": _of_destination(
                _post(gate.REMOVE, "Remove a destination from this node alone", "RemoveRequest", "RemoveAnswer")
            ),
            "/api/v1/rebalance": _post(
                gate.REBALANCE, "Spread the destinations evenly over the nodes", "PlacementRequest", "RebalanceAnswer"
            ),
        },
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
            "schemas": {name: _of_type(kind) for kind, name in _NAMES.items()} | _documents() | _actions(),
        },
    }


# ---- paths


def _get(
    kind: str,
    summary: str,
    schema: str | None,
    parameters: list[Schema] | None = None,
    codes: tuple[str, ...] = (),
) -> Schema:
    answers = _answers(schema, "401", "403", "429", *codes)
    return {"get": _operation(kind, summary, answers) | ({"parameters": parameters} if parameters else {})}


def _post(kind: str, summary: str, wanted: str, schema: str) -> Schema:
    body = {"required": True, "content": {"application/json": {"schema": _ref(wanted)}}}
    answers = _answers(schema, "400", "401", "403", "404", "409", "413", "429")
    return {"post": _operation(kind, summary, answers) | {"requestBody": body}}


def _operation(kind: str, summary: str, answers: Schema) -> Schema:
    need = gate.NEEDS[kind].value
    return {
        "operationId": kind.replace(" ", "_"),
        "summary": summary,
        "description": f"Needs {need}.",
        "responses": answers,
    }


def _of_destination(path: Schema) -> Schema:
    parameter = {"name": "destination", "in": "path", "required": True, "schema": TEXT | {"minLength": 1}}
    for operation in path.values():
        operation["responses"] = _answers(None, "404", "409") | operation["responses"]
    return {"parameters": [parameter], **path}


_REASONS = {
    "400": "The body is not what the action needs",
    "401": "No login, or no valid one",
    "403": "The account lacks the right, or the Host header names another machine",
    "404": "The destination does not run on this node",
    "409": "It cannot be done; the error says why",
    "413": "The body is too long",
    "429": "Too many failed logins; try again later",
}


def _answers(schema: str | None, *codes: str) -> Schema:
    errors: Schema = {
        code: {"description": _REASONS[code], "content": {"application/json": {"schema": _ref("Error")}}}
        for code in codes
    }
    content = {"application/json": {"schema": _ref(schema) if schema else {"type": "object"}}}
    return {"200": {"description": "The answer", "content": content}, **errors}


# ---- schemas


def _of_type(kind: Any, **more: Schema) -> Schema:
    """Return the schema of a dataclass, whose fields are all in the JSON. more: what the JSON has besides."""
    hints = get_type_hints(kind)
    return _object({field.name: _of_hint(hints[field.name]) for field in fields(kind)} | more) | {
        "description": (kind.__doc__ or "").partition("\n")[0]
    }


def _of_hint(hint: Any) -> Schema:
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    if hint in _NAMES:
        return _ref(_NAMES[hint])
    origin, inner = get_origin(hint), get_args(hint)
    if origin is tuple:
        return _list(_of_hint(inner[0]))
    if origin is UnionType:
        (known,) = (each for each in inner if each is not NoneType)
        return {"anyOf": [_of_hint(known), {"type": "null"}]}
    assert origin is Mapping, hint
    return _ref("Snapshot")


def _documents() -> dict[str, Schema]:
    status = {
        "node": _object({**_texts("address", "version", "kernel", "python", "started"), "uptime_s": NUMBER}),
        "alarms": _list(_ref("Alarm")),
        "unready": _list(_ref("Unready")),
        "destinations": _list(_ref("Destination")),
    }
    node = {
        **_texts("address", "status_address", "since", "version", "kernel", "problem"),
        "state": {"enum": ["up", "silent", "gone"]},
        "uptime_s": NUMBER,
        "runs": WHOLE,
        "stands_by": WHOLE,
    }
    client = {
        **_texts("filter", "active", "state", "error", "cursor"),
        "client_id": WHOLE,
        "connected": FLAG,
        "waiting": FLAG,
        "readers": _list(_object({**_texts("account", "address"), "private": FLAG})),
        "batches": WHOLE,
        "oldest_unacked_s": NUMBER,
        "seconds_behind": NUMBER,
        "bytes_behind": WHOLE,
        "alarms": _list(TEXT),
        "snapshot": {"anyOf": [_ref("Snapshot"), {"type": "null"}]},
    }
    destination = {
        **_texts("destination", "owner", "problem", "source_address", "source_role", "source_version", "source_error"),
        "state": {
            "enum": [
                "running",
                "starting",
                "source error",
                "no owner",
                NOT_CONFIGURED,
                "paused",
                "lazy",
                "released",
                "unknown",
                "unreadable",
            ]
        },
        "stand_by": _list(TEXT),
        "seconds_behind": NUMBER,
        "bytes_behind": WHOLE,
        "queue": {"anyOf": [_ref("Queue"), {"type": "null"}]},
        "clients": _list(_ref("ClusterClient")),
    }
    cluster_alarm = _texts("node", "destination", "alarm", "text", "since") | {
        "client_id": {"type": ["integer", "null"]}
    }
    change = _texts("destination", "before", "after")
    lag = {"client_id": WHOLE, "at": _list(NUMBER), "seconds_behind": _list(NUMBER), "bytes_behind": _list(WHOLE)}
    alarm = _object({**_of_type(NodeAlarm)["properties"], "since": TEXT})
    config_alarm = _object({**_of_type(ConfigAlarm)["properties"], "since": TEXT})
    return {
        "Error": _object({"error": TEXT}),
        "Status": _object(status),
        "Unready": _of_type(Unready),
        "Alarm": {"anyOf": [config_alarm, alarm]},
        "Cluster": _object(
            {
                **_texts("by", "at", "problem"),
                "nodes": _list(_ref("ClusterNode")),
                "destinations": _list(_ref("ClusterDestination")),
                "alarms": _list(_object(cluster_alarm)),
                "changes": _list(_object(change | _texts("at", "seen_by"))),
            }
        ),
        "ClusterNode": _object(node),
        "ClusterDestination": _object(destination),
        "ClusterClient": _object(client),
        "Seen": _object(
            {
                "gone": _list(_object({"address": TEXT, "since": NUMBER})),
                "changes": _list(_object(change | {"at": NUMBER})),
            }
        ),
        "Lag": _object({"destination": TEXT, "streams": _list(_object(lag))}),
        "Log": _object({"lines": _list(TEXT)}),
        "Tables": {
            "anyOf": [
                _object({"destination": TEXT, "tables": _list(TEXT)}),
                _object(_texts("destination", "table", "definition")),
            ]
        },
        "Placements": _object(
            {
                "destinations": _list(
                    _object(
                        {
                            **_texts("destination", "runs_on"),
                            "paused": FLAG,
                            **dict.fromkeys(("stand_by", "preferred"), _list(TEXT)),
                        }
                    )
                )
            }
        ),
        "Snapshot": _object(
            {
                **_texts("id", "phase", "error"),
                **dict.fromkeys(("rows", "total", "table"), WHOLE),
                **dict.fromkeys(("tables", "left_out"), _list(TEXT)),
                "failing": TEXT,
                "retry_in_s": NUMBER,
            }
        )
        | {"required": ["id", "phase", "error", "rows", "total", "table", "tables"], "additionalProperties": True},
    }


def _actions() -> dict[str, Schema]:
    snapshot = _object(
        {
            "client_id": CLIENT_ID,
            "action": {"enum": [each.value for each in SnapshotAction]},
            "tables": _list(TEXT),
            "where": {"type": "object", "additionalProperties": TEXT},
            "without_key": FLAG,
            "connections": {"type": "integer", "minimum": 0, "maximum": keys.SNAPSHOT_CONNECTIONS_MOST},
            "rows_per_s_most": {"type": "integer", "minimum": 0, "maximum": keys.INT32},
            "leave_out": _list(TEXT),
        }
    )
    of_page = {key: {"description": "Of the page of another node; it changes nothing"} for key in sorted(FORM_KEYS)}
    move = {**_texts("destination", "moved_from", "moved_to"), "seconds": NUMBER}
    return {
        "SwitchRequest": _object({"to": TEXT | {"pattern": rf"^(?:[1-9][0-9]*/)?(?:{'|'.join(PLACES)})$"}}),
        "SwitchAnswer": _object(_texts("destination", "source")),
        "SnapshotRequest": snapshot | {"required": ["client_id", "action"]},
        "SnapshotAnswer": _object({"destination": TEXT, "client_id": WHOLE, "snapshot": _ref("Snapshot")}),
        "CursorRequest": {
            "oneOf": [
                _object({**_cursor_of("set"), "to": TEXT | {"maxLength": PLACE_MOST}, "dry_run": FLAG})
                | {"required": ["client_id", "action", "to"]},
                _object({**_cursor_of("delete"), "to": {}, "dry_run": FLAG}) | {"required": ["client_id", "action"]},
            ]
        },
        "CursorAnswer": _object({**_texts("destination", "before", "after"), "client_id": WHOLE, "dry_run": FLAG}),
        "PlacementRequest": _object({"dry_run": FLAG}) | {"required": []},
        "MoveRequest": _object({"to": TEXT | {"pattern": "^[ -~]*$"}, "dry_run": FLAG}) | {"required": ["to"]},
        "MoveAnswer": _object({**move, "dry_run": FLAG}),
        "PauseAnswer": _object({**_texts("destination", "ran_on"), "dry_run": FLAG}),
        "ResumeAnswer": _object({**_texts("destination", "runs_on"), "dry_run": FLAG}),
        "AddRequest": _object({"text": TEXT | {"maxLength": TEXT_MOST}, "dry_run": FLAG, **of_page})
        | {"required": ["text"]},
        "AddAnswer": _of_type(DestinationAdded, dry_run=FLAG),
        "RemoveRequest": _object({"purge": FLAG, "dry_run": FLAG, **of_page}) | {"required": []},
        "RemoveAnswer": _of_type(DestinationRemoved, dry_run=FLAG),
        "RebalanceAnswer": _object({"moves": _list(_object(move)), "dry_run": FLAG}),
    }


def _cursor_of(action: str) -> dict[str, Schema]:
    return {"client_id": CLIENT_ID, "action": {"const": action}}


def _texts(*names: str) -> dict[str, Schema]:
    return dict.fromkeys(names, TEXT)


def _object(properties: Mapping[str, Schema]) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
