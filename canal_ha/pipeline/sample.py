"""Writes a commented pipeline file for a type of target, from the JSON schema. Pure."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

from canal_ha.pipeline import schema
from canal_ha.pipeline.yaml_text import scalar

WIDTH = 118
SPARK_KINDS = ("delta", "parquet", "mysql")  # types that Spark writes, too
_PLAIN = re.compile(r"[A-Za-z0-9_./*-][A-Za-z0-9_./*:-]*")
_EXAMPLES: Mapping[str, Any] = {  # for required keys whose schema has no example
    "path": "/var/lib/canal-ha/lake",
    "url": "http://127.0.0.1:8080/rows",
    "address": "127.0.0.1:3307",
    "user": "copy",
    "database": "copies",
    "catalog": {
        "type": "sql",
        "uri": "sqlite:////var/lib/canal-ha/catalog.db",
        "warehouse": "file:///var/lib/canal-ha/lake",
    },
}
_SET = ("name", "tables", "servers", "destination", "clientId", "snapshot")  # besides what is required
_FIRST_CLIENT_ID = 2000


def sample(kind: str) -> str:
    """Return the text of a file that works for a type of target once its addresses are right. Raises KeyError."""
    target = schema.target_schema(kind)
    name = f"shop-{kind}"
    says = str(target.get("title", f"A pipeline into {kind}")).rstrip(".")
    lines = [
        *_comment(f"{says}."),
        "#",
        f"#   canal-ha pipeline check {name}.yaml",
        f"#   canal-ha pipeline run   {name}.yaml",
        "",
    ]
    client_id = _FIRST_CLIENT_ID + crc32(kind.encode()) % 1000  # so that two samples can run side by side
    given: dict[str, Any] = {
        "name": name,
        "state": f"/var/lib/canal-ha/pipelines/{name}",
        "source": {"clientId": client_id},
        "target": {"type": kind, "mode": schema.default_mode(kind)},
        "engine": "embedded",  # the one that has all targets and transforms
    }
    root = schema.joined()
    for key, each in root["properties"].items():
        if key == "spark" and kind not in SPARK_KINDS:
            continue
        each = {**target, "description": each["description"]} if key == "target" else schema.resolved(each)
        lines += _entry(key, each, given.get(key), required=key in given or key in _SET, indent="")
        if key == "source":
            frequent = {name: own for name, own in each["properties"].items() if "examples" in own or name in _SET}
            lines += _section({**each, "properties": frequent}, given[key])
            lines.append("  # All keys, also for TLS, accounts at ZooKeeper and limits: `canal-ha pipeline schema`.")
        elif key == "target":
            lines += _section(each, given[key])
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(section: schema.Schema, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a section's keys, the required ones first."""
    required = [*schema.COMMON, *section.get("required", ())]
    properties = section["properties"]
    for key in sorted(properties, key=lambda name: name not in required):
        each = properties[key]
        if key in schema.COMMON:
            each = {**schema.joined()["properties"]["target"]["properties"][key], **schema.resolved(each)}
        shown = key in given or key in section.get("required", ()) or key in _SET
        yield from _entry(key, schema.resolved(each), given.get(key), required=shown, indent="  ")


def _entry(key: str, entry: schema.Schema, given: Any, *, required: bool, indent: str) -> Iterator[str]:
    """Yield the comment and the line of a key; the line is a comment too unless the key is set."""
    words = str(entry.get("description", "")).removesuffix(".")
    if len(entry.get("enum", ())) > 1 and key != "type":
        words += f". One of {', '.join(map(str, entry['enum']))}"
    if "default" in entry and "efault" not in words:
        words += f". Default: {inline(entry['default'])}"
    yield from _comment(f"{words}.", indent)
    if isinstance(given, Mapping):
        yield f"{indent}{key}:"
        return
    value = given if given is not None else _example(key, entry)
    hidden = "" if required else "# "
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        yield f"{indent}{hidden}{key}:"
        for item in value:
            yield f"{indent}{hidden}  - {inline(item, bare=True)}"
    else:
        yield f"{indent}{hidden}{key}: {inline(value)}"


def _example(key: str, entry: schema.Schema) -> Any:
    if entry.get("examples"):
        return entry["examples"][0]
    if "default" in entry:
        return entry["default"]
    if "enum" in entry:
        return entry["enum"][0]
    if key in _EXAMPLES:
        return _EXAMPLES[key]
    kinds = entry.get("type", "string")
    return {"object": {}, "array": [], "boolean": False, "integer": entry.get("minimum", 1)}.get(kinds, "...")


def _comment(text: str, indent: str = "") -> list[str]:
    mark = f"{indent}# "
    return textwrap.wrap(text, WIDTH, initial_indent=mark, subsequent_indent=mark, break_on_hyphens=False)


def inline(value: Any, *, bare: bool = False) -> str:
    """Return a value in YAML, on one line. bare: without the outer braces of a mapping that has one key."""
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{inline(key)}: {inline(each)}" for key, each in value.items())
        return pairs if bare else f"{{{pairs}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(inline(each) for each in value)}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and not value.startswith(("*", "-")):
        plain = scalar(value) == value and not value.endswith(":")
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)
