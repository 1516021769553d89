"""MySQL's text of a JSON document -> a binary document, which gives the same text again: see kernel/documents.py.

The text does not tell everything of the document that the server stores. A number with a point counts as a DOUBLE if
that is how MySQL writes a DOUBLE, else as a DECIMAL. A DATE, TIME or DATETIME is a string in the text, and stays one.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import b64decode
from decimal import Decimal

from canal_ha.decode.kernel.primitives import varint

_LARGE_OBJECT, _LARGE_ARRAY, _LITERAL, _STRING, _OPAQUE = 1, 3, 4, 12, 15
_INT32, _INT64, _UINT64, _DOUBLE = 7, 9, 10, 11
_INLINED = (_LITERAL, _INT32)
_LITERALS = {None: b"\0", True: b"\1", False: b"\2"}
_NEWDECIMAL = 246
_OPAQUE_TEXT = re.compile(r"base64:type([0-9]{1,3}):([A-Za-z0-9+/]*={0,2})")

Value = tuple[int, bytes]  # kind and content


class _Real(str):
    """The text of a number that has a point or an exponent."""

    __slots__ = ()


class _Members(tuple[tuple[str, object], ...]):
    """The members of an object, in order."""

    __slots__ = ()


_decoder = json.JSONDecoder(object_pairs_hook=_Members, parse_float=_Real, strict=False)


def document(text: bytes) -> bytes:
    """Return the binary form of a text in UTF-8. Raises ValueError if it is not JSON."""
    kind, content = _value(_decoder.decode(text.decode()))
    return bytes([kind]) + content


def _value(value: object) -> Value:
    if isinstance(value, _Real):
        return _real(value)
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool):
        return _LITERAL, _LITERALS[value]
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, _Members):
        return _LARGE_OBJECT, _container([key.encode() for key, _ in value], [_value(member) for _, member in value])
    assert isinstance(value, list)
    return _LARGE_ARRAY, _container(None, [_value(item) for item in value])


def _integer(value: int) -> Value:
    if -(1 << 31) <= value < 1 << 31:
        return _INT32, value.to_bytes(4, "little", signed=True)
    if -(1 << 63) <= value < 1 << 63:
        return _INT64, value.to_bytes(8, "little", signed=True)
    if 0 < value < 1 << 64:
        return _UINT64, value.to_bytes(8, "little")
    return _decimal(str(value))


def _real(text: str) -> Value:
    """Return a DOUBLE if MySQL writes it like this, else a DECIMAL."""
    fraction = text.partition(".")[2]
    shortest = "e" in text or fraction == "0" or not fraction.endswith("0")
    if shortest and ("e" in text or Decimal(repr(float(text))) == Decimal(text)):
        return _DOUBLE, struct.pack("<d", float(text))
    return _decimal(text)


def _decimal(text: str) -> Value:
    """Return a DECIMAL: precision, decimals, then groups of nine digits counted from the point."""
    whole, _, fraction = text.removeprefix("-").partition(".")
    packed = b""
    for start in range(len(whole) % 9 - 9 if len(whole) % 9 else 0, len(whole), 9):
        packed += _group(whole[max(start, 0) : start + 9])
    for start in range(0, len(fraction), 9):
        packed += _group(fraction[start : start + 9])
    if text.startswith("-"):
        packed = bytes(byte ^ 0xFF for byte in packed)
    content = bytes([len(whole) + len(fraction), len(fraction), packed[0] ^ 0x80]) + packed[1:]
    return _opaque(_NEWDECIMAL, content)


def _group(digits: str) -> bytes:
    return int(digits).to_bytes(4 if len(digits) > 6 else (len(digits) + 1) // 2, "big")


def _text(text: str) -> Value:
    opaque = _OPAQUE_TEXT.fullmatch(text) if text.startswith("base64:type") else None
    if opaque and int(opaque[1]) < 256 and len(opaque[2]) % 4 == 0:
        return _opaque(int(opaque[1]), b64decode(opaque[2]))
    raw = text.encode()
    return _STRING, varint(len(raw)) + raw


def _opaque(kind: int, content: bytes) -> Value:
    return _OPAQUE, bytes([kind]) + varint(len(content)) + content


def _container(keys: list[bytes] | None, values: list[Value]) -> bytes:
    """Return a large container: counts, where the keys are, what and where the values are, keys, values."""
    head = 8 + (6 * len(keys) if keys is not None else 0) + 5 * len(values)
    names = b"".join(keys or ())
    at = head
    entries = bytearray()
    for key in keys or ():
        entries += struct.pack("<IH", at, len(key))
        at += len(key)
    contents = bytearray()
    for kind, content in values:
        if kind in _INLINED:
            entries += bytes([kind]) + content.ljust(4, b"\0")
        else:
            entries += struct.pack("<BI", kind, at + len(contents))
            contents += content
    return struct.pack("<II", len(values), at + len(contents)) + entries + names + contents
