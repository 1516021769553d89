"""Tells whether values of one Arrow type, cast to another, are those that ALTER TABLE makes at the source. Pure.

Arrow casts a year to a day number and a boolean to `true`, and knows neither MySQL's texts of times and floating-point
numbers nor the time zone in which it turns a DATETIME into a TIMESTAMP.
"""

from __future__ import annotations

import pyarrow as pa

_FAMILIES = (
    (pa.types.is_boolean, "bit"),
    (pa.types.is_integer, "number"),
    (pa.types.is_decimal, "number"),
    (pa.types.is_floating, "float"),
    (pa.types.is_string, "text"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_date, "date"),
)
_BECOMES = {
    "bit": {"number"},
    "number": {"bit", "float", "text"},
    "float": {"number"},
    "text": {"number", "float", "bytes", "date", "datetime"},
    "bytes": {"text"},
    "date": {"datetime", "text"},
    "datetime": {"date"},
}
"""What each family of types may become. The cast itself refuses values that do not fit."""

_LABELLED = frozenset({"time", "enum", "set"})
"""Families of MySQL's types that are texts here, but whose texts are not those of other values."""


def converted(values: pa.ChunkedArray, kind: pa.DataType, name: str = "") -> pa.ChunkedArray:
    """Return values of another type, as the source has them.

    name: family of the new MySQL type; "" if it is unknown.
    Raises ArrowInvalid for a value that does not fit, and ArrowNotImplementedError for types.
    """
    if not same_as_source(values.type, kind, name) and values.null_count < len(values):
        raise pa.ArrowNotImplementedError(f"the source makes {kind} of {values.type} in a way of its own")
    return values.cast(kind)


def same_as_source(old: pa.DataType, new: pa.DataType, name: str = "") -> bool:
    """Return whether a cast gives the source's values. name: family of the new MySQL type; "" if it is unknown."""
    before, after = _family(old), _family(new)
    if name in _LABELLED and before != "text":
        return False
    return before == after or after in _BECOMES.get(before, ())


def _family(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "datetime"
    return next((name for is_one, name in _FAMILIES if is_one(kind)), str(kind))
