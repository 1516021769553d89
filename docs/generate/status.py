"""The status document, from the dataclasses that `status_document` turns into JSON.

The meaning of a field stands in its class's docstring, as `name: meaning`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import fields

from canal_ha.admin.document import NodeFacts, status_document
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.instance.status import InstanceStatus, PartStatus, QueueStatus, ReaderStatus, StreamStatus
from canal_ha.model.alarm import NodeAlarm
from canal_ha.model.position import LogPosition
from canal_ha.model.unready import Unready
from docs.generate.markdown import code, prose, table

OBJECTS: tuple[tuple[str, str, type], ...] = (
    ("alarms[]", "Where the configuration that runs is not the one in the files.", ConfigAlarm),
    ("alarms[]", "What else needs a person on this node.", NodeAlarm),
    ("unready[]", "Why `/readyz?strict` answers 503.", Unready),
    ("destinations[]", "The destinations that run on this node.", InstanceStatus),
    ("destinations[].streams[]", "The streams of a destination, one for each client id.", StreamStatus),
    ("destinations[].streams[].parts[]", "The sources of a stream that merges several.", PartStatus),
    ("destinations[].queue", "Where the changes go with canal.serverMode = kafka.", QueueStatus),
    ("destinations[].readers[]", "The connections that read a destination.", ReaderStatus),
    (
        "Positions",
        "A field that is a position is null or this object; `trail`, `origins`, `mark` and `snapshot` are empty.",
        LogPosition,
    ),
)
"""(where in the document, what it is, class)."""

NODE: Mapping[str, str] = {
    "address": "the node as ZooKeeper knows it, host:port",
    "version": "of canal-ha",
    "kernel": "the build that decodes rows: compiled or interpreted",
    "python": "version of the interpreter",
    "started": "when the node started, ISO 8601 in UTC",
    "uptime_s": "time since then, s",
}

SINCE = ("since", "text", "when it began, ISO 8601 in UTC")
"""The document shows this field of an alarm as another type than the class has."""


def node() -> Mapping[str, object]:
    """Return the object `node` of a document, for its keys and types."""
    document = status_document(NodeFacts("10.0.0.1:11111", "compiled", 0.0), (), 1.0)
    found: Mapping[str, object] = document["node"]
    return found


def meanings(each: type) -> dict[str, str]:
    """Return field -> meaning, from the docstring's lines `name: meaning`, which can go on in lines below."""
    known = {field.name for field in fields(each)}
    found: dict[str, str] = {}
    name = ""
    for line in (inspect.getdoc(each) or "").splitlines():
        head, colon, rest = line.partition(": ")
        if colon and head in known:
            name, found[head] = head, rest
        elif name and line:
            found[name] += " " + line
        else:
            name = ""
    return {field: meaning.rstrip(".") for field, meaning in found.items()}


def row(name: str, kind: object, meaning: str) -> tuple[str, ...]:
    """Return one line of a table."""
    shown = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    for python, plain in (
        (r"tuple\[(\w+), \.\.\.\]", r"list of \1"),
        (r"(\w+) \| None", r"\1 or null"),
        (r"\bLogPosition\b", "position"),
        (r"\b(Stream|Part|Reader)Status\b", r"\1"),
        (r"\bbool\b", "true or false"),
        (r"\bstr\b", "text"),
        (r"\bint\b", "whole number"),
        (r"\bfloat\b", "number"),
    ):
        shown = re.sub(python, plain, shown)
    return code(name), shown, prose(meaning[:1].upper() + meaning[1:] + ("." if meaning else ""))


def page() -> str:
    """Return a section for each object of the document."""
    head = ("field", "type", "meaning")
    parts = [
        "## node\n\nThe node that answers.\n",
        table(head, [row(name, type(value), NODE[name]) for name, value in node().items()]),
    ]
    for where, what, each in OBJECTS:
        told = meanings(each)
        rows = [
            row(*SINCE)
            if each is ConfigAlarm and field.name == "since"
            else row(field.name, field.type, told[field.name])
            for field in fields(each)
        ]
        parts += [f"## {where}\n\n{what}\n", table(head, rows)]
    return "\n".join(parts)
