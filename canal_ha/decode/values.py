"""canal's text of cells that Python formats: updates of JSON, rare charsets, MariaDB's compressed columns.

All functions take bytes and return UTF-8 bytes; malformed input raises Broken.
"""

from __future__ import annotations

import zlib

import canal_ha.decode.kernel.primitives as p
from canal_ha.decode import column_text, java_text, json_update
from canal_ha.decode.kernel import documents, kinds

INFLATED_MAX = kinds.EVENT_MAX  # bytes: a server compresses nothing larger, but a few bytes could claim more
_DIFFS = ("JSON_REPLACE", "JSON_INSERT", "JSON_REMOVE")
_COLUMN = "column "


def column_codec(name: str) -> str:
    """Return the codec for `recoded` of a reader in column_text.READERS."""
    return _COLUMN + name


def recoded(data: bytes, codec: str) -> bytes:
    """Convert text of another charset to UTF-8; malformed bytes are replaced.

    codec: Python's name, to decode as canal does; or one of `column_codec`, to decode as the server does.
    """
    if codec.startswith(_COLUMN):
        return column_text.decode(data, codec[len(_COLUMN) :]).encode("utf-8", "replace")
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

    Source: canal JsonDiffConversion.
    """
    diffs = _diffs(data)
    if not diffs:
        return b""
    text = column.decode()
    opened = ""
    previous = ""
    for operation, path, value in diffs:
        name = _DIFFS[operation]
        argument = f"'{path}'"
        if operation == json_update.INSERT and path.endswith("]"):
            name = "JSON_ARRAY_INSERT"
        if operation != json_update.REMOVE:
            argument += ", " + documents.document_text(value).decode()
        if name != previous:
            if previous:
                text += ")"
            opened = f"{name}({opened}"
        text += ", " + argument
        previous = name
    return (opened + text + ")").encode("utf-8", "replace")


def updated_document(column: bytes, before: bytes, data: bytes) -> bytes:
    """Return the text of a document after a partial update.

    column: its name.
    before: the stored document of the before image; b"" if the image lacks it. Then the result is that of
        `json_diff_text`, which readers refuse to take for a document.
    data: the diffs.
    """
    return json_update.updated(before, _diffs(data)) if before else json_diff_text(column, data)


def _diffs(data: bytes) -> list[json_update.Diff]:
    """Read the diffs of one column. Source: MySQL sql/json_diff.cc."""
    diffs: list[json_update.Diff] = []
    pos = 0
    while pos < len(data):
        operation = data[pos]
        if operation >= len(_DIFFS):
            raise p.Broken(f"unknown JSON diff {operation}")
        path, pos = _packed_bytes(data, pos + 1)
        value = b""
        if operation != json_update.REMOVE:
            value, pos = _packed_bytes(data, pos)
        diffs.append((operation, path.decode("utf-8", "replace"), value))
    return diffs


def _packed_bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    """Return a string that its length-encoded length precedes, and where it ends."""
    length, pos = packed_integer(data, pos, len(data))
    if pos + length > len(data):
        raise p.Broken("a string beyond its JSON diff")
    return data[pos : pos + length], pos + length


def packed(value: int) -> bytes:
    """Encode MySQL's length-encoded integer."""
    if value < 251:
        return bytes([value])
    size, first = (2, 252) if value < 1 << 16 else (3, 253) if value < 1 << 24 else (8, 254)
    return bytes([first]) + value.to_bytes(size, "little")


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
