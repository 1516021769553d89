"""canal's text for the cells that are made in Python: JSON, odd charsets, MariaDB's compressed columns.

JSON arrives in MySQL's binary form (sql-common/json_binary.h) and leaves as specification 7.4.4 says. Everything here
takes bytes and returns UTF-8 bytes; malformed input raises Broken.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable

import canal_ha.decode.kernel.primitives as p
from canal_ha.decode import java_text
from canal_ha.decode.kernel import kinds, numbers, temporal

INFLATED_MAX = kinds.EVENT_MAX  # bytes: nothing that a server compressed was larger; a few bytes could claim more
_MAX_DEPTH = 128  # MySQL allows 100
_ESCAPED = re.compile('["\\\\\x00-\x1f\x7f-\xa0]')
_NAMED = {'"': '\\"', "\n": "\\n", "\r": "\\r", "\\": "\\\\", "\t": "\\t"}
_LITERALS = {0: "null", 1: "true", 2: "false"}
_TYPE_TIMESTAMP, _TYPE_DATE, _TYPE_TIME, _TYPE_DATETIME, _TYPE_DECIMAL = 7, 10, 11, 12, 246
_INTEGERS = {5: (2, True), 6: (2, False), 7: (4, True), 8: (4, False), 9: (8, True), 10: (8, False)}
_DIFFS = ("JSON_REPLACE", "JSON_INSERT", "JSON_REMOVE")


def recoded(data: bytes, codec: str) -> bytes:
    """Text of another charset, malformed bytes replaced."""
    return java_text.decode(data, codec).encode("utf-8", "replace")


def uncompressed(data: bytes, text: bool, codec: str) -> bytes:
    """A value of a MariaDB column declared COMPRESSED: a header byte, the original length, a zlib stream.

    text: decode with `codec`, else one character per byte.
    """
    if data and data[0]:
        if data[0] & 0xF0 != 0x80:
            raise p.Broken(f"unknown column compression {data[0]:#x}")
        size = data[0] & 7
        data = inflated(data[1 + size :], int.from_bytes(data[1 : 1 + size], "big"), raw=bool(data[0] & 8))
    else:
        data = data[1:]
    return recoded(data, codec if text else "latin-1")


def inflated(data: bytes, expected: int, *, raw: bool = False) -> bytes:
    """A zlib stream that must hold `expected` bytes; no more than that, and one, are ever made. raw: without header."""
    if expected > INFLATED_MAX:
        raise p.Broken(f"compressed data that claims {expected} bytes")
    stream = zlib.decompressobj(-15 if raw else 15)
    try:
        content = stream.decompress(data, expected + 1)
    except zlib.error as error:
        raise p.Broken(f"compressed data does not decompress: {error}") from error
    if len(content) != expected or not stream.eof:
        raise p.Broken(f"compressed data of another length than the {expected} bytes it claims")
    return content


def json_text(data: bytes) -> bytes:
    """A whole document; no bytes at all are an empty text."""
    if not data:
        return b""
    text = _Text(len(data))
    _value(text, data[0], data, 1, len(data), 0)
    return "".join(text.parts).encode("utf-8", "replace")


def json_diff_text(column: bytes, data: bytes) -> bytes:
    """A partial update as the function calls that make it; no diffs at all are an empty text.

    Source: canal JsonDiffConversion; MySQL sql/json_diff.cc for the format.
    """
    diffs: list[tuple[str, str]] = []
    pos = 0
    while pos < len(data):
        operation = data[pos]
        if operation >= len(_DIFFS):
            raise p.Broken(f"unknown JSON diff {operation}")
        name = _DIFFS[operation]
        path, pos = _packed_bytes(data, pos + 1)
        argument = f"'{path.decode('utf-8', 'replace')}'"
        if name == "JSON_INSERT" and path.endswith(b"]"):
            name = "JSON_ARRAY_INSERT"
        if name != "JSON_REMOVE":
            value, pos = _packed_bytes(data, pos)
            argument += ", " + json_text(value).decode()
        diffs.append((name, argument))
    if not diffs:
        return b""
    text = column.decode()
    opened = ""
    previous = ""
    for name, argument in diffs:
        if name != previous:
            if previous:
                text += ")"
            opened = f"{name}({opened}"
            text += ", " + argument
        else:
            text += ", " + argument
        previous = name
    return (opened + text + ")").encode("utf-8", "replace")


def _packed_bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    """A string behind its length-encoded length, and where it ends."""
    length, pos = packed_integer(data, pos, len(data))
    if pos + length > len(data):
        raise p.Broken("a string beyond its JSON diff")
    return data[pos : pos + length], pos + length


def packed_integer(data: bytes, pos: int, stop: int) -> tuple[int, int]:
    """MySQL's length-encoded integer at `pos`, and where it ends."""
    if pos >= stop:
        raise p.Broken("a length is missing")
    first = data[pos]
    if first < 251:
        return first, pos + 1
    size = {252: 2, 253: 3, 254: 8}.get(first, 0)
    if not size or pos + 1 + size > stop:
        raise p.Broken("a length makes no sense")
    return p.little(data, pos + 1, size), pos + 1 + size


class _Text:
    """The text of one document, piece by piece. Its size bounds it: more means that parts are visited repeatedly."""

    __slots__ = ("left", "parts")

    def __init__(self, size: int) -> None:
        self.parts: list[str] = []
        self.left = 16 * size + 64

    def add(self, piece: str) -> None:
        self.left -= len(piece)
        if self.left < 0:
            raise p.Broken("JSON that refers to itself")
        self.parts.append(piece)


def _value(text: _Text, kind: int, data: bytes, pos: int, stop: int, depth: int) -> None:
    """Append the text of one value; data[pos:stop] is where it and its children live."""
    if depth > _MAX_DEPTH:
        raise p.Broken("JSON nested too deep")
    if kind < 4:
        _container(text, kind, data, pos, stop, depth)
    elif kind == 4:
        _need(pos + 1, stop)
        text.add(_literal(data[pos]))
    elif kind in _INTEGERS:
        size, signed = _INTEGERS[kind]
        _need(pos + size, stop)
        text.add(str(p.signed(data, pos, size) if signed else p.little(data, pos, size)))
    elif kind == 11:
        _need(pos + 8, stop)
        text.add(numbers.double_text(data, pos).decode())
    elif kind == 12:
        length, pos = _variable_length(data, pos, stop)
        _need(pos + length, stop)
        text.add(_quoted(data[pos : pos + length]))
    elif kind == 15:
        _need(pos + 1, stop)
        length, start = _variable_length(data, pos + 1, stop)
        _need(start + length, stop)
        text.add(_opaque(data[pos], data, start, length))
    else:
        raise p.Broken(f"unknown JSON type {kind}")


def _container(text: _Text, kind: int, data: bytes, pos: int, stop: int, depth: int) -> None:
    """Objects (0 small, 1 large) and arrays (2, 3): counts, entries, then keys and values at offsets from `pos`."""
    is_object = kind < 2
    width = 4 if kind & 1 else 2
    _need(pos + 2 * width, stop)
    count = p.little(data, pos, width)
    size = p.little(data, pos + width, width)
    _need(pos + size, stop)
    stop = pos + size
    keys = pos + 2 * width
    entries = keys + count * (width + 2) if is_object else keys
    _need(entries + count * (1 + width), stop)
    text.add("{" if is_object else "[")
    for index in range(count):
        if index:
            text.add(", ")
        if is_object:
            entry = keys + index * (width + 2)
            start = pos + p.little(data, entry, width)
            length = p.u16(data, entry + width)
            _need(start + length, stop)
            text.add(_quoted(data[start : start + length]))
            text.add(": ")
        entry = entries + index * (1 + width)
        child = data[entry]
        if child in (4, 5, 6) or (width == 4 and child in (7, 8)):
            _value(text, child, data, entry + 1, entry + 1 + width, depth + 1)
        else:
            start = pos + p.little(data, entry + 1, width)
            _need(start, stop)
            _value(text, child, data, start, stop, depth + 1)
    text.add("}" if is_object else "]")


def _need(end: int, stop: int) -> None:
    if end > stop:
        raise p.Broken("JSON beyond its bounds")


def _literal(code: int) -> str:
    text = _LITERALS.get(code)
    if text is None:
        raise p.Broken(f"unknown JSON literal {code}")
    return text


def _variable_length(data: bytes, pos: int, stop: int) -> tuple[int, int]:
    """Seven bits a byte, at most five bytes."""
    length = 0
    for shift in range(0, 35, 7):
        _need(pos + 1, stop)
        length |= (data[pos] & 127) << shift
        pos += 1
        if data[pos - 1] < 128:
            return length, pos
    raise p.Broken("a JSON length makes no sense")


def _quoted(raw: bytes) -> str:
    text = java_text.decode(raw, "utf-8")
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return _NAMED.get(char) or f"\\u{ord(char):04x}"


def _opaque(kind: int, data: bytes, pos: int, length: int) -> str:
    """A value of a MySQL type that JSON does not have."""
    if kind == _TYPE_DECIMAL:
        if length < 3:
            raise p.Broken("a JSON decimal without digits")
        precision, decimals = data[pos], data[pos + 1]
        if decimals > precision or not precision or length - 2 < numbers.decimal_size(precision, decimals):
            raise p.Broken("a JSON decimal beyond its bounds")
        return numbers.decimal_text(data, pos + 2, precision, decimals).decode()
    packed = _PACKED.get(kind)
    if packed is None:
        return _quoted(data[pos : pos + length])
    if length < 8:
        raise p.Broken("a JSON time without its eight bytes")
    value = p.signed(data, pos, 8)
    return f'"{packed(value)}"'


def _packed_time(value: int) -> str:
    if value == 0:
        return "00:00:00"
    magnitude = abs(value)
    whole = magnitude >> 24
    sign = "-" if value < 0 else ""
    return f"{sign}{whole >> 12 & 1023:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}.{magnitude & 0xFFFFFF:06d}"


def _packed_datetime(value: int) -> str:
    if value == 0:
        return "0000-00-00 00:00:00"
    magnitude = abs(value)
    return f"{temporal.packed_datetime(magnitude >> 24).decode()}.{magnitude & 0xFFFFFF:06d}"


_PACKED: dict[int, Callable[[int], str]] = {
    _TYPE_TIME: _packed_time,
    _TYPE_DATE: _packed_datetime,
    _TYPE_DATETIME: _packed_datetime,
    _TYPE_TIMESTAMP: _packed_datetime,
}
