"""MySQL's binary JSON made from values, and the text that canal shows for them (docs/protocol.md#json)."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import Any

from canal_ha.decode.kernel import numbers

STRINGS = ("", "plain", "x" * 127, "long " * 30, 'q"\\/\n\r\t', "\0\x1f\x7f", "\x80\xa0¡é中\U0001f600", "ascii, then ü")


@dataclass(frozen=True, slots=True)
class Raw:
    """A value given as its kind and its bytes."""

    kind: int
    content: bytes


def sized(raw: bytes) -> bytes:
    """Return the bytes after their length, which has seven bits a byte."""
    length = len(raw)
    size = bytearray()
    while length > 127:
        size.append(length & 127 | 128)
        length >>= 7
    return bytes([*size, length]) + raw


def opaque(code: int, raw: bytes) -> Raw:
    """Return a value of a MySQL type that JSON does not have."""
    return Raw(15, bytes([code]) + sized(raw))


def document(value: Any, large: bool = False) -> bytes:
    """Return a whole document. large: containers have offsets of four bytes."""
    kind, raw = pack(value, large)
    return bytes([kind]) + raw


def pack(value: Any, large: bool) -> tuple[int, bytes]:
    """Return (kind, bytes) of MySQL's binary JSON (sql-common/json_binary.cc); numbers take the fewest bytes."""
    if isinstance(value, Raw):
        return value.kind, value.content
    if isinstance(value, dict | list):
        return (0 if isinstance(value, dict) else 2) + large, _container(value, large)
    if value is None or isinstance(value, bool):
        return 4, bytes([{None: 0, True: 1, False: 2}[value]])
    if isinstance(value, int):
        for kind, form in ((5, "<h"), (7, "<i"), (9, "<q")):
            if -(1 << (struct.calcsize(form) * 8 - 1)) <= value < 1 << (struct.calcsize(form) * 8 - 1):
                return kind, struct.pack(form, value)
        return 10, struct.pack("<Q", value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    return 12, sized(value.encode())


def _container(value: dict[str, Any] | list[Any], large: bool) -> bytes:
    width, form = (4, "<I") if large else (2, "<H")
    keys = [key.encode() for key in value] if isinstance(value, dict) else []
    items = list(value.values()) if isinstance(value, dict) else value
    head = 2 * width + len(keys) * (width + 2) + len(items) * (1 + width)
    body = bytearray(b"".join(keys))
    key_entries = bytearray()
    offset = head
    for key in keys:
        key_entries += struct.pack(form, offset) + struct.pack("<H", len(key))
        offset += len(key)
    value_entries = bytearray()
    for item in items:
        kind, raw = pack(item, large)
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            value_entries += bytes([kind]) + raw.ljust(width, b"\0")
        else:
            value_entries += bytes([kind]) + struct.pack(form, head + len(body))
            body += raw
    size = head + len(body)
    return struct.pack(form, len(items)) + struct.pack(form, size) + key_entries + value_entries + body


def shown(value: Any) -> str:
    """Return canal's text of a value that contains no Raw."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{shown(key)}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(map(_character, value)) + '"'
    if isinstance(value, float):
        return numbers.double_text(struct.pack("<d", value), 0).decode()
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _character(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    return f"\\u{ord(char):04x}" if char < " " or "\x7f" <= char <= "\xa0" else char


# ---- random documents


def drawn(chance: random.Random) -> bytes:
    """Return a random document: all kinds of values, nested containers, some malformed texts."""
    large = chance.random() < 0.3
    return document(_any(chance, large, chance.choice((0, 1, 2, 3))), large)


def _any(chance: random.Random, large: bool, depth: int) -> Any:
    if depth and chance.random() < 0.7:
        if chance.random() < 0.1:  # a container of the other size
            return Raw(*pack(_any(chance, not large, depth - 1), not large))
        items = [_any(chance, large, depth - 1) for _ in range(chance.choice((0, 1, 2, 5)))]
        if chance.random() < 0.5:
            return items
        return {chance.choice(STRINGS) + str(index): item for index, item in enumerate(items)}
    what = chance.randrange(10)
    if what < 2:
        return chance.choice(STRINGS)
    if what < 4:
        return chance.choice((None, True, False, 0, -1, 2**16, -(2**31), 2**31, -(2**63), 2**63, 2**64 - 1))
    if what == 4:
        return chance.choice((0.0, -0.0, 2.5, 1e20, chance.randrange(10**6) / 100, chance.gauss(0, 1e9)))
    if what == 5:
        return Raw(11, chance.randbytes(8))
    if what == 6:  # unsigned numbers of two and four bytes
        size = chance.choice((2, 4))
        return Raw(6 if size == 2 else 8, chance.choice((chance.randbytes(size), b"\xff" * size)))
    if what == 7:
        return Raw(12, sized(chance.randbytes(chance.choice((1, 3, 8, 40)))))
    if what == 8:
        return opaque(246, b"\x0a\x04" + chance.choice((bytes(5), b"\x80\0\0\x01\x02\x03", chance.randbytes(6))))
    code = chance.choice((7, 10, 11, 12, 3, 252))
    value = chance.choice((0, 1, -1, -(2**63), chance.randrange(-(2**55), 2**55), chance.getrandbits(50) << 10))
    return opaque(code, struct.pack("<q", value))
