"""The keys of pipeline files, from their JSON schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from canal_ha.pipeline import schema
from canal_ha.pipeline.sample import inline
from docs.generate.markdown import code, prose, table

HEAD = ("key", "default", "meaning")


def row(name: str, given: schema.Schema, *, required: bool) -> tuple[str, ...]:
    """Return one line of a table."""
    each = schema.resolved(given)
    default = code(inline(each["default"])) if "default" in each else "required" if required else ""
    says = str(each.get("description", "")).rstrip(".")
    return code(name), default, f"{prose(says)}. Expected: {prose(schema.expected(each))}."


def section(keys: schema.Schema) -> str:
    """Return the table of an object's keys."""
    required = set(keys.get("required", ()))
    return table(HEAD, [row(name, each, required=name in required) for name, each in keys["properties"].items()])


def sections() -> Iterator[tuple[str, schema.Schema]]:
    """Yield a heading and the schema of its keys."""
    root = schema.joined()
    yield "The file", root
    yield "source", root["properties"]["source"]
    yield "target", root["properties"]["target"]
    for kind in schema.targets():
        whole = schema.target_schema(kind)
        common: Mapping[str, Any] = root["properties"]["target"]["properties"]
        own = {name: each for name, each in whole["properties"].items() if name not in common or name == "mode"}
        mode = {"description": common["mode"]["description"], **schema.resolved(own["mode"])}
        yield f"target of type {kind}", {**whole, "properties": {**own, "mode": mode}}
    for kind, each in root["$defs"]["transform"]["properties"].items():
        yield f"transforms: {kind}", each
    yield "spark", root["properties"]["spark"]


def page() -> str:
    """Return a section for each part of the file."""
    return "\n".join(f"### {prose(heading)}\n\n{section(keys)}" for heading, keys in sections())
