"""canal's text of cells that Python formats: updates of JSON, rare charsets, MariaDB's compressed columns.

All functions take bytes and return UTF-8 bytes; malformed input raises Broken.
"""

from __future__ import annotations

import zlib

import canal_ha.decode.kernel.primitives as p
from canal_ha.decode import java_text
from canal_ha.decode.kernel import documents, kinds

INFLATED_MAX = kinds.EVENT_MAX  # bytes: a server compresses nothing larger, but a few bytes could claim more
_DIFFS = ("JSON_REPLACE", "JSON_INSERT", "JSON_REMOVE")


def recoded(data: bytes, codec: str) -> bytes:
    """Convert text of another charset to UTF-8; malformed bytes are replaced."""
    return java_text.decode(data, codec).encode("utf-8", "replace")


def uncompressed(data: bytes, text: bool, codec: str) -> bytes:
    """Return the value of a MariaDB column declared COMPRESSED: a header byte, the original length, a zlib stream.

    data: the stored value.
    text: whether to decode it with `codec`; otherwise each byte is one character.
    codec: Python's name.
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
    """Decompress exactly `expected` bytes, and never more than one beyond. raw: the zlib stream has no header."""
    if expected > INFLATED_MAX:
        raise p.Broken(f"compressed data that claims {expected} bytes")
    stream = zlib.decompressobj(-15 if raw else 15)
    try:
        content = stream.decompress(data, expected + 1)
    except zlib.error as error:
        raise p.Broken(f"compressed data does not decompress: {error}") from error
    if len(content) != expected or not stream.eof:
        raise p.Broken(f"compressed data whose length differs from the {expected} bytes that it claims")
    return content


def json_diff_text(column: bytes, data: bytes) -> bytes:
    """Return a partial update as the function calls that make it; "" if there are no diffs.

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
            argument += ", " + documents.document_text(value).decode()
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
    """Return a string that its length-encoded length precedes, and where it ends."""
    length, pos = packed_integer(data, pos, len(data))
    if pos + length > len(data):
        raise p.Broken("a string beyond its JSON diff")
    return data[pos : pos + length], pos + length


def packed_integer(data: bytes, pos: int, stop: int) -> tuple[int, int]:
    """Return MySQL's length-encoded integer at `pos`, and where it ends."""
    if pos >= stop:
        raise p.Broken("a length is missing")
    first = data[pos]
    if first < 251:
        return first, pos + 1
    size = {252: 2, 253: 3, 254: 8}.get(first, 0)
    if not size or pos + 1 + size > stop:
        raise p.Broken("an invalid length")
    return p.little(data, pos + 1, size), pos + 1 + size
