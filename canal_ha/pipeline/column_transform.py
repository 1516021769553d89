"""What the transforms do to a column, and the values that a target gets for it. Pure.

A hash is that of the node's column privacy (decode/privacy.py), of the value's text in canal's exact form; an ENUM or
SET counts as its labels. Equal values of a batch are hashed once, which is the only Python object that a value costs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from canal_ha.client.arrow_types import ColumnType, column_type, decimals_of, strings, to_arrow
from canal_ha.client.rows import Value, converted
from canal_ha.decode.kernel.layouts import ColumnLayout
from canal_ha.decode.privacy import MASK, PROTECTED_TYPE, Protection
from canal_ha.errors import SinkRefused

VARCHAR = 12  # java.sql.Types
_PROTECTED = column_type(PROTECTED_TYPE, VARCHAR)
_TIME = re.compile(r"-?([0-7]?[0-9]{1,2}|8[0-2][0-9]|83[0-8]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?")
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]"
_WITHOUT_SECONDS = r"^(-?[0-9]{1,3}:[0-9]{2})$"


@dataclass(frozen=True, slots=True)
class ColumnTransform:
    """What happens to a column.

    source: its name at the source.
    name: at the target.
    protection: how its values are hidden.
    hashed: makes a hash of a text, both UTF-8; None unless the column is hashed.
    cast: its type at the target; None for its own.
    """

    source: str
    name: str
    protection: Protection = Protection.NONE
    hashed: Callable[[bytes], bytes] | None = None
    cast: ColumnType | None = None

    @property
    def renames(self) -> bool:
        """Whether the target's column has another name."""
        return self.name != self.source

    @property
    def changes_values(self) -> bool:
        """Whether the target's column has other values, or another type, or is missing."""
        return self.protection is not Protection.NONE or self.cast is not None

    @property
    def dropped(self) -> bool:
        """Whether the target does not get it."""
        return self.protection is Protection.DROP

    def type_of(self, column: ColumnLayout) -> ColumnType:
        """Return the column's type at the target."""
        if self.protection is not Protection.NONE:
            return _PROTECTED
        return self.cast or column_type(column.mysql_type, column.sql_type)

    def values(self, given: pa.Array) -> pa.Array:
        """Return the target's values; those of a protected column are given as texts. Raises SinkRefused."""
        if self.protection is Protection.MASK:
            return pc.if_else(pc.is_valid(given), MASK.decode(), pa.scalar(None, pa.string()))
        if self.hashed is not None:
            return _hashes(given, self.hashed)
        return given if self.cast is None else _fitting(given, self.cast)

    def value_of(self, column: ColumnLayout, time_zone: str) -> Callable[[Any], Value]:
        """Return what makes the target's value from one of `TableTransform.convert`. It raises SinkRefused."""
        if self.protection is Protection.MASK:
            return lambda value: MASK.decode()
        hashed, wanted = self.hashed, self.cast
        if hashed is not None:
            return lambda value: hashed(_text(value).encode()).decode()
        if wanted is None:
            return lambda value: converted(*value) if isinstance(value, tuple) else value
        own = column_type(column.mysql_type, column.sql_type)
        return lambda value: _cast(value, own, wanted, time_zone)


def kept(text: str, sql_type: int, mysql_type: str) -> tuple[str, int, str]:
    """Keep what `ColumnTransform.value_of` needs, in place of `converted`."""
    return text, sql_type, mysql_type


def _text(value: object) -> str:
    """Return the text of a value, the same as in a batch."""
    if not isinstance(value, tuple):
        return str(value)
    made = converted(*value)
    return made if isinstance(made, str) else str(value[0])


def _cast(value: object, own: ColumnType, wanted: ColumnType, time_zone: str) -> Value:
    text = value[0] if isinstance(value, tuple) else str(value)
    [made] = _fitting(to_arrow([text], own, wanted.arrow, time_zone), wanted).to_pylist()
    if isinstance(made, datetime):
        return _moment(made, decimals_of(wanted))
    return str(made) if isinstance(made, date) else made


def _fitting(values: pa.Array, wanted: ColumnType) -> pa.Array:
    """Return values as the wanted type has them. Only types whose values are texts here need a look.

    MySQL takes `9:30` for 9:30:00, and the time of `2026-01-31 09:30:00`. Others do not.

    Raises SinkRefused for a text that is no value of the type.
    """
    if wanted.name not in ("time", "json"):
        return values
    if wanted.name == "time":
        values = pc.replace_substring_regex(values, _DAY, "")
        values = pc.replace_substring_regex(values, _WITHOUT_SECONDS, r"\1:00")
    for text in pc.unique(values).drop_null().to_pylist():
        if not (_TIME.fullmatch(text) if wanted.name == "time" else _is_document(text)):
            raise SinkRefused(f"canal: a value does not fit its cast to {wanted.text}: {text[:80]!r}")
    return values


def _is_document(text: str) -> bool:
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no value in JSON")


def _moment(made: datetime, decimals: int) -> str:
    """Return date and time as a server writes them: exactly so many decimals, the others are cut off."""
    return made.replace(tzinfo=None).isoformat(" ", "microseconds")[: 20 + decimals if decimals else 19]


def _hashes(texts: pa.Array, hashed: Callable[[bytes], bytes]) -> pa.Array:
    """Return the hashes of texts; NULL stays NULL."""
    different = texts.dictionary_encode()
    made = [hashed(text.encode()).decode() for text in different.dictionary.to_pylist()]
    return strings(made).take(different.indices) if made else pa.nulls(len(texts), pa.string())
