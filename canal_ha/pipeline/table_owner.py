"""Tells whether a table of a lake is for the rows of this pipeline and destination. Pure.

Its properties name them. Tables of earlier versions have no such properties, or only some of them; there the progress
in the table tells who has written it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from canal_ha.errors import SinkRefused

PIPELINE = "canal.pipeline"
DESTINATIONS = "canal.destinations"


def claimed(
    properties: Mapping[str, str],
    pipeline: str,
    destination: str,
    where: str,
    *,
    wrote: Callable[[], bool],
    merges: bool,
    free: Callable[[], bool],
) -> dict[str, str]:
    """Return the properties that make a table this destination's; {} if it has them. Raises SinkRefused.

    properties: of the table.
    pipeline, destination: that would write into it.
    where: type of the target, and the table, for messages.
    wrote: returns whether the table has progress of this destination.
    merges: a route with `merge: true` leads to the table, so several destinations may write it.
    free: returns whether the table has no rows yet.
    """
    owner, others = properties.get(PIPELINE), _destinations(properties)
    if owner not in (None, pipeline):
        raise SinkRefused(
            f"{where} belongs to pipeline {owner!r}, and pipeline {pipeline!r} would write rows of destination"
            f" {destination} into it. Nothing was written. Give each pipeline a place of its own. If {owner!r} is no"
            f" longer there: drop the table, or set its property {PIPELINE} to {pipeline}"
        )
    if destination in others:
        return {}
    if others and not (merges or wrote()):
        raise SinkRefused(
            f"{where} has the rows of destination {', '.join(others)}, and destination {destination} has a table of"
            " this name, too. Nothing was written. Give each destination a table of its own: with a pipeline and a"
            " place of its own. If no key is in both, a route with merge: true puts them into one table"
        )
    if not others and owner is None and not (wrote() or free()):
        raise SinkRefused(
            f"{where} exists and has rows, and nothing shows that this pipeline wrote them: they would stay in the"
            f" copy, or go with a TRUNCATE. Nothing was written. If an earlier version of pipeline {pipeline!r} wrote"
            f" them, or if it may change them: set the table's property {PIPELINE} to {pipeline}. Else drop or rename"
            " the table, or choose another place"
        )
    return {PIPELINE: pipeline, DESTINATIONS: json.dumps([*others, destination])}


def _destinations(properties: Mapping[str, str]) -> list[str]:
    try:
        found = json.loads(properties.get(DESTINATIONS, "[]"))
    except ValueError:
        return []
    return [str(each) for each in found] if isinstance(found, list) else []
