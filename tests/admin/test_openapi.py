"""The description of the JSON API, and whether real answers are as it says."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from canal_ha.admin.additions import TEXT_MOST
from canal_ha.admin.openapi import openapi
from canal_ha.admin.routes import ROUTES
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.model.alarm import NodeAlarm
from lab.desk import OTHER_NODE, Browser, Desk

OF_DESTINATION = "destinations/{destination}/"
ADMIN = {"Authorization": "Basic " + b64encode(b"admin:geheim").decode()}


def check(path: str, code: int, body: Any, method: str = "get") -> None:
    """Raise ValidationError if an answer is not as the description says. path: as in the description."""
    document = openapi()
    content = document["paths"][path][method]["responses"][str(code)]["content"]
    schema = content["application/json"]["schema"]
    Draft202012Validator({**schema, "components": document["components"]}).validate(body)


def test_it_describes_every_route() -> None:
    """Path and methods are those of the table of routes."""
    described = {
        (re.sub(r"\{\w+\}", "(.+)", path), method.upper())
        for path, methods in openapi()["paths"].items()
        for method in methods
        if method != "parameters"
    }
    assert described == {(route.path, route.methods[0].decode()) for route in ROUTES}


def test_its_schemas_are_schemas() -> None:
    """Every reference leads somewhere."""
    document = openapi()
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for name in re.findall(r"#/components/schemas/(\w+)", json.dumps(document)):
        assert name in document["components"]["schemas"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/status",
        "/api/v1/cluster",
        "/api/v1/seen",
        "/api/v1/log",
        "/api/v1/openapi.json",
        "/api/v1/destinations",
    ],
)
def test_answers_are_as_described(path: str) -> None:
    """Documents of the node and of the cluster."""
    desk = Desk()
    desk.seen.owners({"example": "a:1"}, 1.0)
    desk.seen.owners({"example": "b:1"}, 2.0)
    desk.seen.nodes(["a:1", "b:1"], 1.0)
    desk.seen.nodes(["b:1"], 2.0)
    answer = Browser(desk).get(path, **ADMIN)
    assert answer.code == 200
    check(path, 200, json.loads(answer.body))
    refused = Browser(desk).get(path)
    assert refused.code == 401
    check(path, 401, json.loads(refused.body))


def test_alarms_are_as_described() -> None:
    """Those of files and those of nodes have different fields."""
    schema = {"$ref": "#/components/schemas/Alarm", "components": openapi()["components"]}
    for alarm in (ConfigAlarm("refused", "shop", "text", True, 1.0), NodeAlarm("logs", "", "text", 1.0)):
        fields = {name: getattr(alarm, name) for name in alarm.__slots__}
        Draft202012Validator(schema).validate({**fields, "since": "2026-01-01T00:00:00+00:00"})


@pytest.mark.parametrize(
    ("part", "body", "code"),
    [
        (f"{OF_DESTINATION}source", {"to": "standby"}, 200),
        (f"{OF_DESTINATION}source", {"to": "master"}, 409),
        (f"{OF_DESTINATION}source", {"to": "elsewhere"}, 400),
        (f"{OF_DESTINATION}snapshot", {"client_id": 1001, "action": "start", "tables": ["shop.orders"]}, 200),
        (f"{OF_DESTINATION}snapshot", {"client_id": 1001}, 400),
        (f"{OF_DESTINATION}move", {"to": OTHER_NODE, "dry_run": True}, 200),
        (f"{OF_DESTINATION}move", {"to": "10.0.0.9:1"}, 409),
        (f"{OF_DESTINATION}move", {"dry_run": True}, 400),
        (f"{OF_DESTINATION}pause", {}, 200),
        (f"{OF_DESTINATION}pause", {"dry_run": "yes"}, 400),
        (f"{OF_DESTINATION}resume", {"dry_run": False}, 200),
        (f"{OF_DESTINATION}add", {"text": "canal.instance.master.address = db:3306", "dry_run": True}, 200),
        (f"{OF_DESTINATION}cursor", {"client_id": 1001, "action": "set", "to": "latest"}, 200),
        (f"{OF_DESTINATION}cursor", {"client_id": 1001, "action": "delete", "dry_run": True}, 200),
        (f"{OF_DESTINATION}cursor", {"client_id": 7, "action": "set", "to": "earliest"}, 409),
        (f"{OF_DESTINATION}cursor", {"client_id": 1001.0, "action": "set", "to": "latest"}, 200),
        (f"{OF_DESTINATION}cursor", {"client_id": 1001, "action": "set", "to": "yesterday"}, 409),
        (f"{OF_DESTINATION}cursor", {"client_id": 1001.5, "action": "delete"}, 400),
        (f"{OF_DESTINATION}cursor", {"client_id": True, "action": "delete"}, 400),
        (f"{OF_DESTINATION}cursor", {"client_id": 1001, "action": "set"}, 400),
        (f"{OF_DESTINATION}snapshot", {"client_id": 1, "action": "pause", "connections": 17}, 400),
        (f"{OF_DESTINATION}snapshot", {"client_id": 1, "action": "start", "tables": ["a.b"], "connections": 7.0}, 200),
        (f"{OF_DESTINATION}move", {"to": "\u009f"}, 400),
        (f"{OF_DESTINATION}cursor", {"client_id": 1 << 15, "action": "delete"}, 400),
        (f"{OF_DESTINATION}add", {"text": ""}, 409),
        (f"{OF_DESTINATION}add", {"text": "x" * (TEXT_MOST + 1)}, 400),
        (f"{OF_DESTINATION}add", {}, 400),
        (f"{OF_DESTINATION}remove", {}, 200),
        (f"{OF_DESTINATION}remove", {"purge": 1}, 400),
        ("rebalance", {"dry_run": True}, 200),
        ("rebalance", [], 400),
        ("rebalance", {"dryrun": True}, 400),
        (f"{OF_DESTINATION}source", {"to": "standby", "dry_run": True}, 400),
        (f"{OF_DESTINATION}snapshot", {"client_id": 1, "action": "start", "tables": ["a.b"], "whre": {}}, 400),
        (f"{OF_DESTINATION}cursor", {"client_id": 1001, "action": "delete", "dryrun": True}, 400),
        (f"{OF_DESTINATION}cursor", {"client_id": 1001, "action": "delete", "to": ""}, 200),
        (f"{OF_DESTINATION}move", {"to": OTHER_NODE, "dry-run": True}, 400),
        (f"{OF_DESTINATION}pause", {"dryRun": True}, 400),
        (f"{OF_DESTINATION}add", {"text": "a = b", "destination": "x", "node": "y", "dry_run": True}, 200),
        (f"{OF_DESTINATION}remove", {"destination": "x", "node": "y", "purge": False}, 200),
        (f"{OF_DESTINATION}remove", {"Purge": True}, 400),
    ],
)
def test_actions_are_as_described(part: str, body: Any, code: int) -> None:
    """A body that the description allows is taken, and the answer is as it says."""
    path = "/api/v1/" + part
    document = openapi()
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    allowed = Draft202012Validator({**content, "components": document["components"]}).is_valid(body)
    assert allowed == (code != 400)
    text = json.dumps(body)
    answer = Desk().ask(
        f"POST {path.replace('{destination}', 'example')} HTTP/1.1\r\nHost: localhost\r\nAuthorization:"
        f" {ADMIN['Authorization']}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}"
    )
    assert answer.code == code
    check(path, code, json.loads(answer.body), "post")
