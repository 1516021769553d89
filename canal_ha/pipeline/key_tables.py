"""Finds tables that a pipeline's file gives a key to, though the target never gets them: names with a mistake. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from canal_ha.errors import SinkRefused
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.transform_rules import GROUP
from canal_ha.pipeline.transforms import Transforms


def idle_keys(description: Description) -> Iterator[tuple[str, str]]:
    """Yield each table under `keys` that has no use for a key, with the reason.

    A table counts as used if the `to` of a transform can name it, also if nothing of the source has the name before.
    """
    places = [each["to"] for given in description.transforms for each in given.values() if "to" in each]
    for name in description.keys:
        if any(_can_name(place, name) for place in places):
            continue
        schema, _, table = name.partition(".")
        if not description.takes(schema, table):
            other = any(fnmatchcase(name.lower(), pattern.lower()) for pattern in description.tables)
            yield name, "`tables` does not include it" + (": letter case counts" if other else "")
        elif _is_renamed(description, schema, table):
            yield name, "the transforms give it another name; keys have the names at the target"


def _is_renamed(description: Description, schema: str, table: str) -> bool:
    try:
        return Transforms(description.transforms).of(schema, table).renames
    except SinkRefused:  # said when the table comes
        return False


def _can_name(place: str, name: str) -> bool:
    """Return whether a name can be what `to` gives. place: with groups such as `\\1`, of a route."""
    parts = GROUP.split(place)[::2]
    return re.fullmatch(".*".join(map(re.escape, parts)), name, re.S) is not None
