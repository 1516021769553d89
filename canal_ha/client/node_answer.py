"""What a node's answers must look like before a command reads them: anybody may listen at an address.

A shape is int, float (which integers have too), str, bool, a list with the shape of its elements, or a dict with the
shapes of its keys; a key with a question mark may be missing. Other keys are those of another version, and nobody reads
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canal_ha.model.excerpt import excerpt, printable

MOST = 2.0**64  # of a number; every figure of a node is below


@dataclass(frozen=True, slots=True)
class OrNull:
    """A shape that null has too."""

    shape: Any


MOVE: Mapping[str, Any] = {"destination": str, "moved_from": str, "moved_to": str, "seconds": float}
PLACED: Mapping[str, Any] = {
    "destination": str,
    "runs_on": str,
    "paused": bool,
    "stand_by": [str],
    "preferred": [str],
}
ADDED: Mapping[str, Any] = {
    "node": str,
    "file": str,
    "listed": bool,
    "restart": bool,
    "missing_on": [str],
    "warnings": [str],
    "dry_run": bool,
}
REMOVED: Mapping[str, Any] = {
    "node": str,
    "ran_here": bool,
    "restart": bool,
    "still_on": [str],
    "kept": [str],
    "deleted": [str],
    "dry_run": bool,
}
POSITION: Mapping[str, Any] = {
    "journal": str,
    "offset": int,
    "part?": int,
    "others?": [{"journal": str, "offset": int, "part": int}],
}
SNAPSHOT: Mapping[str, Any] = {
    "id": str,
    "phase": str,
    "rows": int,
    "total": int,
    "table": int,
    "tables": [str],
    "error": str,
    "attempt_rows?": int,
    "reading?": [str],
    "left_out?": [str],
    "rows_per_s?": float,
    "left_s?": float,
    "failing?": str,
    "retry_in_s?": float,
}
STREAM: Mapping[str, Any] = {
    "client_id": int,
    "filter": str,
    "state": str,
    "error": str,
    "cursor": OrNull(POSITION),
    "decoded": OrNull(POSITION),
    "ring_entries": int,
    "ring_capacity": int,
    "batches": [int],
    "waiting?": int,
    "oldest_unacked_s": float,
    "seconds_behind": float,
    "bytes_behind": int,
    "alarms?": [str],
    "parts?": [{"source_address": str, "left_behind": bool}],
    "snapshot?": OrNull(SNAPSHOT),
}
QUEUE: Mapping[str, Any] = {
    "servers": str,
    "position": OrNull(POSITION),
    "commits": int,
    "rows": int,
    "lag_s": float,
    "waits_for": str,
    "error": str,
}
STATUS: Mapping[str, Any] = {
    "node": {"address": str, "version": str, "kernel": str, "uptime_s": float},
    "alarms?": [{"text": str}],
    "unready?": [{"text": str}],
    "destinations": [
        {
            "destination": str,
            "source_address": str,
            "source_error": str,
            "source_role?": str,
            "detecting_failures?": int,
            "streams": [STREAM],
            "queue?": OrNull(QUEUE),
            "readers?": [{"account": str, "address": str, "client_id": int, "private": bool}],
        }
    ],
}
SETTINGS: Sequence[Any] = [{"key": str, "value": str, "origin": str}]
NODE_CONFIGURATION: Mapping[str, Any] = {"main_file": str, "destinations": [str], "settings": SETTINGS}
DESTINATION_CONFIGURATION: Mapping[str, Any] = {"destination": str, "settings": SETTINGS}


def check(value: Any, shape: Any, where: str = "it") -> None:
    """Raise ValueError, with the place, if a JSON value does not have a shape.

    value: as json reads it.
    shape: see the module.
    where: how to call the value.
    """
    if isinstance(shape, OrNull):
        if value is not None:
            check(value, shape.shape, where)
    elif isinstance(shape, list):
        _expect(isinstance(value, list), value, "a list", where)
        for index, each in enumerate(value):
            check(each, shape[0], f"{where}[{index}]")
    elif isinstance(shape, Mapping):
        _expect(isinstance(value, dict), value, "an object", where)
        for key, inner in shape.items():
            name = key.removesuffix("?")
            if name in value:
                check(value[name], inner, f"{where}.{name}")
            elif name == key:
                raise ValueError(f"{where} has no {name}")
    elif shape in (str, bool):
        _expect(isinstance(value, shape), value, "a text" if shape is str else "true or false", where)
    else:
        fits = isinstance(value, int if shape is int else int | float) and not isinstance(value, bool)
        _expect(fits and -MOST < value < MOST, value, "a number", where)


def _expect(fits: bool, value: object, what: str, where: str) -> None:
    if not fits:
        raise ValueError(f"{where} is {printable(excerpt(repr(value)))}, not {what}")
