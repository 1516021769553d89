"""Compiles the transforms of a pipeline's file. Pure.

`drop`, `mask` and `hash` match tables in any case, so that a name in another case exposes nothing; all others match
exactly. Names of columns match in any case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import re2

from canal_ha.client.arrow import META
from canal_ha.client.arrow_types import column_type
from canal_ha.decode.privacy import Privacy, Protection
from canal_ha.errors import OptionInvalid, SinkRefused
from canal_ha.pipeline.column_transform import VARCHAR, ColumnTransform

Table = tuple[str, str]
TABLES_KEPT = 65536
_EVERY_TABLE = ("*",)
_PROTECTIONS = {"drop": Protection.DROP, "mask": Protection.MASK, "hash": Protection.HASH}
_CASTS = frozenset(
    {"integer", "decimal", "float", "double", "date", "datetime", "timestamp", "time", "year", "text", "json"}
    | {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
)
GROUP = re.compile(r"\\([0-9])|\\\\")
_LONGEST = 64  # characters of a name in MySQL


@dataclass(frozen=True, slots=True)
class TransformRule:
    """One transform, compiled.

    matches: whether it is about a table.
    places: returns a table's new names; None if it is about columns.
    column: changes the plan of a column.
    protects: it hides columns.
    hides: these columns, in lower case, if it is about one table that it names without wildcards.
    merges: several tables may become one.
    """

    matches: Callable[[str, str], bool]
    places: Callable[[str, str], Table | None] | None
    column: Callable[[ColumnTransform], ColumnTransform]
    protects: bool = False
    hides: frozenset[str] = frozenset()
    merges: bool = False


def rule_of(kind: str, given: Mapping[str, Any]) -> TransformRule:
    """Compile a transform. given: what stands under `kind` in the file. Raises OptionInvalid."""
    match kind, given:
        case "route", _:
            return TransformRule(_every, _route(given["match"], given["to"]), _same, merges=given.get("merge", False))
        case "rename", {"to": to}:
            tables = _listed(given.get("tables", _EVERY_TABLE))
            if len(tables) != 1 or set(tables[0]) & set("*?["):
                raise OptionInvalid("rename.tables: expected the name of one table; `route` renames several")
            old, new = tables[0], _two(to, "rename.to")
            return TransformRule(_every, lambda schema, table: new if f"{schema}.{table}" == old else None, _same)
        case "rename", {"columns": columns}:
            return TransformRule(_matching(given), None, _renaming(columns))
        case "cast", _:
            return TransformRule(_matching(given), None, _casting(given["columns"]))
    tables = _listed(given.get("tables", _EVERY_TABLE))
    one = len(tables) == 1 and not set(tables[0]) & set("*?[")
    return TransformRule(
        _matching(given, any_case=True),
        None,
        _protecting(_PROTECTIONS[kind], given),
        protects=True,
        hides=frozenset(name.lower() for name in _listed(given["columns"])) if one else frozenset(),
    )


def _every(schema: str, table: str) -> bool:
    return True


def _same(plan: ColumnTransform) -> ColumnTransform:
    return plan


def _listed(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _matching(given: Mapping[str, Any], *, any_case: bool = False) -> Callable[[str, str], bool]:
    patterns = _listed(given.get("tables", _EVERY_TABLE))
    if not any_case:
        return lambda schema, table: any(fnmatchcase(f"{schema}.{table}", pattern) for pattern in patterns)
    lower = [pattern.lower() for pattern in patterns]
    return lambda schema, table: any(fnmatchcase(f"{schema}.{table}".lower(), pattern) for pattern in lower)


def _protecting(protection: Protection, given: Mapping[str, Any]) -> Callable[[ColumnTransform], ColumnTransform]:
    columns = {name.lower() for name in _listed(given["columns"])}
    hashed = Privacy((), given["key"]).protect(protection) if protection is Protection.HASH else None

    def changed(plan: ColumnTransform) -> ColumnTransform:
        if plan.name.lower() not in columns or plan.protection >= protection:
            return plan
        return replace(plan, protection=protection, hashed=hashed)

    return changed


def _renaming(columns: Mapping[str, str]) -> Callable[[ColumnTransform], ColumnTransform]:
    own = {field.name for field in META}
    for name in columns.values():
        if name.lower() in own or len(name) > _LONGEST:
            raise OptionInvalid(f"rename.columns: expected another new name than {name[:_LONGEST]}")
    lower = {old.lower(): new for old, new in columns.items()}
    return lambda plan: replace(plan, name=lower.get(plan.name.lower(), plan.name))


def _casting(columns: Mapping[str, str]) -> Callable[[ColumnTransform], ColumnTransform]:
    types = {}
    for name, text in columns.items():
        kind = column_type(text, VARCHAR)
        if kind.name not in _CASTS:
            raise OptionInvalid(f"cast.columns.{name}: expected a type of MySQL, as varchar(20), bigint or datetime(6)")
        types[name.lower()] = kind

    def changed(plan: ColumnTransform) -> ColumnTransform:
        kind = types.get(plan.name.lower())
        return plan if kind is None else replace(plan, cast=kind)

    return changed


def _route(match: str, to: str) -> Callable[[str, str], Table | None]:
    options = re2.Options()
    options.log_errors = False
    try:
        expression = re2.compile(match, options)
    except re2.error as error:
        said = error.args[0] if error.args else b""
        why = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise OptionInvalid(f"route.match: expected a regular expression of RE2: {why}") from None
    templates = _two(to, "route.to")
    groups = [int(each) for each in re.findall(GROUP, to) if each]
    if max(groups, default=0) > expression.groups:
        raise OptionInvalid(f"route.to: expected groups up to \\{expression.groups}, as route.match has them")

    @lru_cache(TABLES_KEPT)
    def place(schema: str, table: str) -> Table | None:
        source = f"{schema}.{table}"
        found = expression.fullmatch(source)
        if found is None:
            return None
        schema, table = (
            GROUP.sub(lambda group: found[int(group[1])] or "" if group[1] else "\\", template)
            for template in templates
        )
        if not (0 < len(schema) <= _LONGEST and 0 < len(table) <= _LONGEST):
            raise SinkRefused(f"canal: the route of {source} gives a table without a name, or one that is too long")
        return schema, table

    return place


def _two(text: str, key: str) -> Table:
    """Return schema and table."""
    schema, dot, table = text.partition(".")
    if not (schema and dot and table):
        raise OptionInvalid(f"{key}: expected schema.table")
    return schema, table
