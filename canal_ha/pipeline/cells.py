"""Turns Arrow columns into the texts that SQL servers read: rows of COPY, and rows of VALUES. Pure; vectorised."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

NUL = "\0"
_COPY_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_LARGEST_SINGLE = (("3.4028235e+38", "3.4028234663852886e+38"),)  # the shortest text is a larger double: out of range
_LITERAL_ESCAPES = (("\\", "\\\\"), ("'", "''"), (NUL, "\\0"))


def copy_rows(columns: Sequence[pa.Array]) -> pa.Array:
    """Return each row as a line of PostgreSQL's COPY in text format. Texts must not have U+0000."""
    cells = [_copied(column) for column in columns]
    lines = pc.binary_join_element_wise(*cells, "\t", null_handling="replace", null_replacement="\\N")
    return pc.binary_join_element_wise(lines, pa.scalar("\n"), "")


def value_rows(columns: Sequence[pa.Array]) -> pa.Array:
    """Return each row as `(value, ...)` of MySQL, for sessions with backslash escapes."""
    cells = [literals(column) for column in columns]
    inner = pc.binary_join_element_wise(*cells, ",", null_handling="replace", null_replacement="NULL")
    return pc.binary_join_element_wise(pa.scalar("("), inner, pa.scalar(")"), "")


def literals(column: pa.Array) -> pa.Array:
    """Return values as MySQL's literals; NULL stays NULL."""
    kind = column.type
    if pa.types.is_binary(kind):
        return _wrapped("x'", _hex(column), "'")
    if pa.types.is_string(kind):
        return _wrapped("'", _escaped(column, _LITERAL_ESCAPES), "'")
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or (pa.types.is_decimal(kind) and not kind.scale)
    texts = _texts(column)
    if pa.types.is_float32(kind):
        texts = _escaped(texts, _LARGEST_SINGLE)
    return texts if whole else _wrapped("'", texts, "'")  # text of a decimal is exact; a number with exponent is not


def has_nul(column: pa.Array) -> bool:
    """Return whether a text has U+0000."""
    return pa.types.is_string(column.type) and NUL.encode() in _data(column)


def without_nul(column: pa.Array) -> pa.Array:
    """Return texts with U+FFFD for U+0000."""
    return pc.replace_substring(column, NUL, "\ufffd")


def payload(rows: pa.Array) -> memoryview:
    """Return the bytes of texts, one behind the other, without a copy."""
    return _data_view(rows)


def statements(
    rows: pa.Array, head: bytes, tail: bytes, most_bytes: int, most_rows: int, separator: str
) -> Sequence[bytes]:
    """Return statements of rows.

    rows: of `value_rows`, or literals.
    head, tail: before and behind the rows.
    most_bytes: a statement is longer only if it has one row.
    most_rows: of a statement.
    separator: between two rows.
    """
    joined = pc.binary_join_element_wise(rows, pa.scalar(separator), "")
    offsets, data = _offsets(joined), _data_view(joined)
    base, first, made = offsets[0], 0, []
    for place in _cuts(offsets, most_bytes - len(head) - len(tail), most_rows):
        made.append(b"".join((head, data[offsets[first] - base : offsets[place] - base - len(separator)], tail)))
        first = place
    return made


def _cuts(offsets: Sequence[int], most_bytes: int, most_rows: int) -> Sequence[int]:
    """Return the ends of the statements, as numbers of rows."""
    count, first, cuts = len(offsets) - 1, 0, []
    while first < count:
        place = bisect_right(offsets, offsets[first] + most_bytes, first) - 1
        first = min(max(place, first + 1), first + most_rows, count)
        cuts.append(first)
    return cuts


def _copied(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        return _wrapped("\\\\x", _hex(column), "")
    return _escaped(column, _COPY_ESCAPES) if pa.types.is_string(column.type) else _texts(column)


def _texts(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp(kind.unit))  # in UTC, as the sessions are
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    return column.cast(pa.string())


def _escaped(column: pa.Array, escapes: Sequence[tuple[str, str]]) -> pa.Array:
    data = _data(column)
    for character, escape in escapes:
        if character.encode() in data:
            column = pc.replace_substring(column, character, escape)
    return column


def _wrapped(before: str, texts: pa.Array, behind: str) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(before), texts, pa.scalar(behind), "")


def _hex(column: pa.Array) -> pa.Array:
    offsets = pa.Array.from_buffers(pa.int32(), len(column) + 1, [None, column.buffers()[1]], offset=column.offset)
    digits = pa.py_buffer(_data_view(column).hex().encode())
    doubled = pc.multiply(pc.subtract(offsets, offsets[0]), pa.scalar(2, pa.int32()))
    made = pa.Array.from_buffers(pa.string(), len(column), [None, doubled.buffers()[1], digits])
    return pc.if_else(column.is_valid(), made, pa.scalar(None, pa.string())) if column.null_count else made


def _offsets(texts: pa.Array) -> memoryview:
    whole = memoryview(texts.buffers()[1]).cast("i")
    return whole[texts.offset : texts.offset + len(texts) + 1]


def _data_view(texts: pa.Array) -> memoryview:
    if not len(texts) or texts.buffers()[2] is None:
        return memoryview(b"")
    offsets = _offsets(texts)
    return memoryview(texts.buffers()[2])[offsets[0] : offsets[-1]]


def _data(texts: pa.Array) -> bytes:
    return bytes(_data_view(texts))
