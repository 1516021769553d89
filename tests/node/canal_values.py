"""Rows of `canal-ha client --format json` in the form that the workload compares."""

from __future__ import annotations

import datetime as dt
import json
from base64 import b64decode
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tests.node.workload import Change, Row, parse_time

_READERS: dict[str, Callable[[Any], Any]] = {
    "amount": Decimal,
    "placed": lambda text: dt.datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f"),
    "day": dt.date.fromisoformat,
    "took": parse_time,
    "yr": int,
    "c": json.loads,
}


def change_of(row: dict[str, Any]) -> Change:
    """Return the change in one object of --format json."""
    return row["table"], row["type"], _side(row["before"]), _side(row["after"])


def _side(values: Row | None) -> Row | None:
    return None if values is None else {name: _value(name, value) for name, value in values.items()}


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, dict):
        return b64decode(value["$bytes"])
    return _READERS[name](value) if name in _READERS else value
