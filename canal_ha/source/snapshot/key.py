"""The key of a table: which columns a snapshot reads it by, and where a chunk begins. Pure.

A key is a primary key, or else a unique key of columns that are never NULL. The server compares and orders keys; here
they are only copied from a row into the next SELECT. A kept text names the order in which it was read, because another
collation or another type puts other rows behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import Any
from uuid import UUID
from zlib import crc32

from canal_ha.decode.ddl.create_table import quoted
from canal_ha.model.table import Column

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_QUOTED = re.compile(r"[-0-9A-Fa-f:. ]*")
_HEX = re.compile(r"0x([0-9a-f]{2})*")
_CHARSET = re.compile(r"[a-z0-9_]+")

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "integer", "bigint", "year", "bit"})
_NUMBERS = _INTEGERS | {"decimal", "numeric", "float", "double"}
NO_COLLATION = ("", "")

_QUOTED_TYPES = frozenset({"date", "datetime", "timestamp", "time"})
_ADDRESSES: dict[str, Callable[[bytes], object]] = {  # selected as bytes; their texts are those of the server
    "inet4": IPv4Address,
    "inet6": IPv6Address,
    "uuid": lambda value: UUID(bytes=value),
}
_BINARY = frozenset({"binary", "varbinary"})
_TEXTS = frozenset({"char", "varchar"})
_LABELLED = frozenset({"enum", "set"})  # ordered by number, and compared as texts


class _Form(Enum):
    """How a value is kept: as a number, as a text that stands between quotes, or as the hex digits of its bytes."""

    NUMBER = 1
    QUOTED = 2
    HEX = 3


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One column of a key.

    place: among the table's columns.
    charset: of a text; "" for others.
    cast: the type as which it is compared and ordered; "" for its own.
    order: what orders the values, a collation for example; "" for numbers and bytes.
    """

    name: str
    place: int
    form: _Form
    charset: str = ""
    cast: str = ""
    order: str = ""

    @property
    def _head(self) -> str:
        return f"{self.name}:{self.order}" if self.order else self.name

    @property
    def is_number(self) -> bool:
        """Whether its texts hold plain numbers."""
        return self.form is _Form.NUMBER

    @property
    def expression(self) -> str:
        """What is compared and ordered."""
        return f"CAST({quoted(self.name)} AS {self.cast})" if self.cast else quoted(self.name)

    def text(self, value: bytes) -> str:
        """Return the text to keep for a value as the server sent it: its name and order, and what `literal` reads."""
        kept = "0x" + value.hex() if self.form is _Form.HEX else value.decode("ascii")
        return f"{self._head}={kept}"

    def literal(self, text: str) -> str:
        """Return the SQL for a kept text. Raises ValueError for a text of another column, or of another order."""
        head, _, kept = text.rpartition("=")
        pattern = {_Form.NUMBER: _NUMBER, _Form.QUOTED: _QUOTED, _Form.HEX: _HEX}[self.form]
        if head != self._head or not pattern.fullmatch(kept):
            raise ValueError(f"{text!r} is no value of the key column {self.name}")
        if self.order in _ADDRESSES:
            return f"'{self._address(kept)}'"
        if self.form is _Form.HEX:
            return f"{self.charset and '_' + self.charset} X'{kept[2:]}'"
        return kept if self.form is _Form.NUMBER else f"'{kept}'"

    def _address(self, kept: str) -> object:
        """Return an address, whose text the server compares in the order of the index; bytes it compares as texts.

        Raises ValueError for hex digits of another length.
        """
        return _ADDRESSES[self.order](bytes.fromhex(kept[2:]))


@dataclass(frozen=True, slots=True)
class TableKey:
    """The key of a table. index: its name on the server; "" if no index serves the comparison."""

    columns: tuple[KeyColumn, ...]
    index: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in the order of the key."""
        return tuple(column.name for column in self.columns)

    @property
    def timestamps(self) -> tuple[int, ...]:
        """The places of its TIMESTAMP columns, whose values canal's form has in local time."""
        return tuple(place for place, column in enumerate(self.columns) if column.order == "timestamp")

    def condition(self, texts: Sequence[str]) -> str:
        """Return the SQL that holds for rows behind a key. Servers optimize row constructors badly, so it has ORs.

        texts: of the columns, as `KeyColumn.text` makes them. Raises ValueError if they are of another key.
        """
        return self._compared(texts, ">", ">")

    def up_to(self, texts: Sequence[str]) -> str:
        """Return the SQL that holds for the row with a key, and for those before it. See `condition`."""
        return self._compared(texts, "<", "<=")

    def _compared(self, texts: Sequence[str], sign: str, last: str) -> str:
        """Return the comparison of the columns with a key. sign: of the comparison; last: that of the last column."""
        if len(texts) != len(self.columns):
            raise ValueError(f"a key of {len(texts)} columns; the table's has {len(self.columns)}")
        pairs = [(column.expression, column.literal(text)) for column, text in zip(self.columns, texts, strict=True)]
        expression, value = pairs.pop()
        condition = f"{expression} {last} {value}"
        if not pairs:
            return condition
        for expression, value in reversed(pairs):
            condition = f"{expression} {sign} {value} OR ({expression} = {value} AND ({condition}))"
        return f"{expression} {sign}= {value} AND ({condition})"

    def continues(self, texts: Sequence[str]) -> bool:
        """Return whether texts are of this key."""
        try:
            self.condition(texts)
        except ValueError:
            return False
        return True

    def texts(self, values: Sequence[bytes | None]) -> tuple[str, ...]:
        """Return the texts to keep for a row. values: of all columns, as the server sent them."""
        return tuple(column.text(values[column.place] or b"") for column in self.columns)

    def between(self, after: Sequence[str], until: Sequence[str]) -> list[str]:
        """Return the SQL conditions for rows behind a key, up to another one; () for either sets no bound."""
        conditions = [f"({self.condition(after)})"] if after else []
        return conditions + ([f"({self.up_to(until)})"] if until else [])

    @property
    def order(self) -> str:
        """The SQL that orders by the key."""
        return ", ".join(column.expression for column in self.columns)

    @property
    def reverse(self) -> str:
        """The SQL that orders by the key, the last one first."""
        return ", ".join(f"{column.expression} DESC" for column in self.columns)


def column_names(texts: Iterable[str]) -> set[str]:
    """Return the names of the columns that kept texts are of, and more: where a name ends is in doubt."""
    heads = {text.rpartition("=")[0] for text in texts}
    return heads | {head.rpartition(":")[0] for head in heads}


def key_of(
    columns: Sequence[Column], collations: Mapping[str, tuple[str, str]], indexes: Iterable[Mapping[str, Any]]
) -> TableKey | None:
    """Return the key of a table; None if it has none.

    columns: of the table.
    collations: the character set and the collation of its text columns, by the name of the column, as the server knows
        them.
    indexes: the rows of SHOW INDEX.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in indexes:
        if not int(row["Non_unique"]):
            found.setdefault(str(row["Key_name"]), []).append(row)
    places = {column.name.lower(): place for place, column in enumerate(columns)}
    for index in sorted(found, key=lambda name: (name != "PRIMARY", name)):
        parts = sorted(found[index], key=lambda row: int(row["Seq_in_index"]))
        made = [_column(row, columns, places, collations) for row in parts]
        whole = tuple(each for each in made if each is not None)
        if len(whole) == len(parts):
            seen = parts[0].get("Visible", "YES") == "YES" and parts[0].get("Ignored", "NO") == "NO"
            ordered = str(parts[0].get("Index_type", "")).upper() != "HASH"  # of MEMORY, and MariaDB's long unique keys
            usable = seen and ordered and not any(each.cast for each in whole)
            return TableKey(whole, index if usable else "")
    return None


def _column(
    row: Mapping[str, Any],
    columns: Sequence[Column],
    places: Mapping[str, int],
    collations: Mapping[str, tuple[str, str]],
) -> KeyColumn | None:
    """Return a column of a key; None if the key cannot be used because of it."""
    name = row.get("Column_name")  # None for an expression
    place = None if name is None else places.get(str(name).lower())
    if place is None or row.get("Sub_part") is not None or row.get("Null") == "YES":
        return None
    column = columns[place]
    kind = re.split(r"[ (]", column.mysql_type.lower(), maxsplit=1)[0]
    if kind in _LABELLED:
        labels = f"{crc32(column.mysql_type.encode()):08x}"
        return KeyColumn(column.name, place, _Form.NUMBER, cast="UNSIGNED", order=labels)
    if kind in _ADDRESSES:
        return KeyColumn(column.name, place, _Form.HEX, order=kind)
    if kind in _NUMBERS:
        return KeyColumn(column.name, place, _Form.NUMBER)
    if kind in _QUOTED_TYPES:
        return KeyColumn(column.name, place, _Form.QUOTED, order=kind)
    if kind in _BINARY:
        return KeyColumn(column.name, place, _Form.HEX)
    charset, collation = collations.get(column.name, NO_COLLATION)
    if kind in _TEXTS and _CHARSET.fullmatch(charset):
        return KeyColumn(column.name, place, _Form.HEX, "" if charset == "binary" else charset, order=collation)
    return None
