"""The JSON schema of pipeline files: schema.json, joined with the options of each target (targets/TYPE.schema.json).

Errors are sentences: the place, what is expected there, and the nearest known key. No value of the file is in them but
a wrong word where one of several is expected, and none that a placeholder gave.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator, ValidationError, validators

from canal_ha.model.excerpt import excerpt, printable
from canal_ha.pipeline.yaml_text import Path

COMMON = ("type", "mode", "evolve")  # keys of every target
_SUFFIX = ".schema.json"
_TYPES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "keys and values",
    "null": "nothing",
}
Schema = Mapping[str, Any]


@cache
def targets() -> Mapping[str, Schema]:
    """Return the schema of each type's own options."""
    found = {}
    for file in sorted(files("canal_ha.pipeline.targets").iterdir(), key=lambda file: file.name):
        if file.name.endswith(_SUFFIX):
            found[file.name.removesuffix(_SUFFIX)] = json.loads(file.read_text())
    return found


@cache
def joined() -> Schema:
    """Return the schema of a whole file, as editors take it."""
    schema = json.loads((files("canal_ha.pipeline") / "schema.json").read_text())
    schema["description"] = "A file that `canal-ha pipeline` runs."
    target = schema["properties"]["target"]
    target["properties"]["type"]["enum"] = list(targets())
    target["allOf"] = [
        {"if": {"properties": {"type": {"const": kind}}, "required": ["type"]}, "then": _whole(kind, own, schema)}
        for kind, own in targets().items()
    ]
    return schema  # type: ignore[no-any-return]  # json.loads gives Any


def _whole(kind: str, own: Schema, schema: Schema) -> Schema:
    """Return the schema of a target of one type with all of its keys."""
    common: dict[str, Schema] = {name: {} for name in COMMON}
    for name in COMMON:
        if f"{name} of {kind}" in schema["$defs"]:
            common[name] = {"$ref": f"#/$defs/{name} of {kind}"}
    rest = {name: value for name, value in own.items() if not name.startswith("$")}
    whole = {**rest, "properties": {**common, **own.get("properties", {})}, "additionalProperties": False}
    return whole if "$defs" not in own else {**whole, "$defs": own["$defs"], "$id": f"canal-ha:target/{kind}"}


def target_schema(kind: str) -> Schema:
    """Return the schema of a target of this type with all of its keys. Raises KeyError."""
    for each in joined()["properties"]["target"]["allOf"]:
        if each["if"]["properties"]["type"]["const"] == kind:
            return each["then"]  # type: ignore[no-any-return]  # json.loads gives Any
    raise KeyError(kind)


def default_mode(kind: str) -> str:
    """Return the mode of a target whose file names none."""
    mode = resolved(target_schema(kind)["properties"]["mode"])
    return str(mode.get("default", "mirror"))


def resolved(schema: Schema) -> Schema:
    """Return a schema with what its reference to `$defs` says."""
    reference = schema.get("$ref", "")
    if not reference.startswith("#/$defs/"):
        return schema
    return {**resolved(joined()["$defs"][reference.removeprefix("#/$defs/")]), **schema}


@cache
def _validator() -> Draft202012Validator:
    kind = validators.extend(Draft202012Validator, {"pattern": _pattern})  # type: ignore[no-untyped-call]  # as above
    return kind(joined())  # type: ignore[no-any-return]  # jsonschema leaves it untyped


def _pattern(_: Draft202012Validator, pattern: str, value: object, __: Schema) -> Iterator[ValidationError]:
    """Yield an error for a text that does not match. `$` is the end, as in JSON Schema: Python allows a line end there.

    A file behind a placeholder can have an empty last line.
    """
    if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), value):
        yield ValidationError("does not match")


def problems(value: object, line: Callable[[Path], int], secret: Callable[[Path], bool]) -> list[tuple[int, str]]:
    """Return the errors of a file as line and sentence, by line.

    value: the parsed content.
    line: returns the line of a value.
    secret: returns whether a value must not be shown.
    """
    found: dict[tuple[int, str], None] = {}
    errors = list(_validator().iter_errors(value))
    told = {tuple(error.absolute_path) for error in errors if _of_type(error)}
    for error in errors:
        if error.validator == "enum" and tuple(error.absolute_path) in told and not _of_type(error):
            continue  # what a target can have at all, where its type allows less
        for place, says in _sentences(error, secret):
            found[line(place), says] = None
    return sorted(found)


def _of_type(error: ValidationError) -> bool:
    """Return whether a type of target finds a word wrong, by its own list."""
    return error.validator == "enum" and "allOf" in error.absolute_schema_path


def _sentences(error: ValidationError, secret: Callable[[Path], bool]) -> Iterator[tuple[Path, str]]:
    """Yield path and sentence of each thing that one error means."""
    place: Path = tuple(error.absolute_path)
    name = shown(place)
    schema: Any = error.schema
    value: Any = error.instance
    said: Any = error.validator_value
    match error.validator:
        case _ if "propertyNames" in error.schema_path:
            key = printable(excerpt(str(value)))
            yield (*place, value), f"{name}: expected {expected({'type': 'string', **schema})} as key, not {key}"
        case "additionalProperties" | "unevaluatedProperties" if schema.get(error.validator) is False:
            known = schema.get("properties", {})
            for key in value.keys() - known.keys():
                yield (*place, key), _unknown((*place, key), list(known))
        case "required":
            for key in said:
                if key not in value:
                    yield place, f"{shown((*place, key))} is missing: expected {expected(_property(schema, key))}"
        case "dependentRequired":
            for key, needed in said.items():
                for missing in needed if key in value else ():
                    if missing not in value:
                        yield (*place, key), f"{shown((*place, key))} needs {missing} too"
        case "oneOf" | "anyOf" if all(set(each) == {"required"} for each in said):
            names = [" with ".join(each["required"]) for each in said]
            several = "at least" if error.validator == "anyOf" else "exactly"
            yield place, f"{name}: expected {several} one of {_listed(names)}"
        case "oneOf" | "anyOf":
            yield place, f"{name}: expected {' or '.join(expected(each) for each in said)}"
        case "minProperties" | "maxProperties" if schema.get("maxProperties") == 1:
            keys = _listed(schema.get("properties", {}))
            yield place, f"{name}: expected exactly one of {keys}; begin another item with `-` for each"
        case "enum" | "const" if isinstance(value, str) and not secret(place):
            near = _nearest(value, [str(each) for each in schema.get("enum", [])])
            word = printable(excerpt(value))
            yield place, f"{name} = {word}: expected {expected(schema)}{near}"
        case "type" if isinstance(value, (bool, int, float)) and "string" in _types(schema):
            yield place, f"{name}: expected {expected(schema)}; put the value in quotes"
        case "minItems" | "minLength" | "minProperties":
            yield place, f"{name}: expected {expected(schema)}, not empty"
        case _:
            yield place, f"{name}: expected {expected(schema)}"


def shown(place: Path) -> str:
    """Return a path as `transforms[2].drop.columns`; items are counted from 1."""
    text = ""
    for step in place:
        text += f"[{step + 1}]" if isinstance(step, int) else f".{printable(excerpt(step))}"
    return text.lstrip(".") or "the file"


def expected(schema: Schema) -> str:
    """Return what a value must be, as a noun."""
    schema = resolved(schema)
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return "one of " + _listed(map(str, schema["enum"])) if len(schema["enum"]) > 1 else str(schema["enum"][0])
    types = _types(schema)
    noun = " or ".join(_noun(each, schema) for each in types) or "another value"
    match schema.get("minimum"), schema.get("maximum"):
        case None, None:
            pass
        case low, None:
            noun += f" of at least {low}"
        case None, high:
            noun += f" of at most {high}"
        case low, high:
            noun += f", {low} to {high}"
    if "exclusiveMinimum" in schema:
        noun += f" above {schema['exclusiveMinimum']}"
    examples = schema.get("examples", ())
    if examples and isinstance(examples[0], (str, int)):
        noun += f", as {examples[0]}"
    return noun


def _noun(kind: str, schema: Schema) -> str:
    if kind == "string" and "pattern" in schema:
        return str(schema.get("title", f"a text that matches {schema['pattern']}"))
    if kind == "array" and "items" in schema:
        items = expected(schema["items"])
        return "a list" if items == "a text" or "string" in _types(schema) else f"a list, each item {items}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"keys and values, each value {expected(schema['additionalProperties'])}"
    return _TYPES[kind]


def _types(schema: Schema) -> list[str]:
    kinds = resolved(schema).get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _property(schema: Schema, key: str) -> Schema:
    found: Schema = schema.get("properties", {}).get(key, {})
    return found


def _unknown(place: Path, known: Sequence[str]) -> str:
    """Return the sentence about a key that does not exist."""
    key = str(place[-1])
    sections = [
        name
        for name in ("source", "target", "spark", "")
        if (name,) != place[:-1] and name != "" and key in _properties_of(name)
    ]
    near = _nearest(key, known)
    if not near and len(place) == 1 and sections:
        near = f"; it belongs under {sections[0]}"
    elif not near and len(place) > 1 and key in joined()["properties"]:
        near = "; it belongs at the left margin, under no other key"
    keys = f"the keys are {_listed(known)}" if len(known) > 1 else f"the only key is {known[0]}" if known else "no keys"
    return f"{shown(place)} is unknown{near}" if near else f"{shown(place)} is unknown; {keys}"


def _properties_of(section: str) -> set[str]:
    if section == "target":
        return {name for own in targets().values() for name in own.get("properties", {})} | set(COMMON)
    return set(joined()["properties"][section].get("properties", {}))


def _nearest(word: str, known: Sequence[str]) -> str:
    lower = {each.lower(): each for each in known}
    found = get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return f"; did you mean {lower[found[0]]}?" if found else ""


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "nothing"
