"""JSON and the other cells that are made in Python."""

from __future__ import annotations

import json
import struct
import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.decode import values
from canal_ha.decode.kernel.primitives import Broken


def pack(value: Any, large: bool) -> tuple[int, bytes]:
    """(type, bytes) of MySQL's binary JSON (sql-common/json_binary.cc)."""
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
    raw = value.encode()
    length = len(raw)
    size = bytearray()
    while length > 127:
        size.append(length & 127 | 128)
        length >>= 7
    return 12, bytes([*size, length]) + raw


def _container(value: dict[str, Any] | list[Any], large: bool) -> bytes:
    width, form = (4, "<I") if large else (2, "<H")
    keys = [key.encode() for key in value] if isinstance(value, dict) else []
    items = list(value.values()) if isinstance(value, dict) else value
    head = 2 * width + len(keys) * (width + 2) + len(items) * (1 + width)
    body = b"".join(keys)
    key_entries = b""
    offset = head
    for key in keys:
        key_entries += struct.pack(form, offset) + struct.pack("<H", len(key))
        offset += len(key)
    value_entries = b""
    for item in items:
        kind, raw = pack(item, large)
        if kind in (4, 5) or (large and kind == 7):
            value_entries += bytes([kind]) + raw.ljust(width, b"\0")
        else:
            value_entries += bytes([kind]) + struct.pack(form, head + len(body))
            body += raw
    size = head + len(body)
    return struct.pack(form, len(items)) + struct.pack(form, size) + key_entries + value_entries + body


documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)


@given(documents, st.booleans())
def test_documents_survive(document: Any, large: bool) -> None:
    """The text is JSON and means the document that was packed, in the small and the large format."""
    kind, raw = pack(document, large)
    assert json.loads(values.json_text(bytes([kind]) + raw)) == document


def test_spelling() -> None:
    """Separators and escapes are canal's."""
    document = {"a": [1, None, True], 'q"': "\n\x01\x7f/é"}
    kind, raw = pack(document, False)
    assert values.json_text(bytes([kind]) + raw).decode() == '{"a": [1, null, true], "q\\"": "\\n\\u0001\\u007f/é"}'
    assert values.json_text(b"") == b""


def test_opaque_values() -> None:
    """DECIMAL is a number; dates carry a time; what has no text of its own shows its bytes."""
    assert values.json_text(b"\x0f\xf6\x04\x04\x02\x81\x32") == b"1.50"
    noon = ((2024 * 13 + 2) << 5 | 29) << 17 | 12 << 12
    assert values.json_text(b"\x0f\x0c\x08" + struct.pack("<q", noon << 24)) == b'"2024-02-29 12:00:00.000000"'
    assert values.json_text(b"\x0f\x0b\x08" + struct.pack("<q", -(1 << 36))) == b'"-01:00:00.000000"'
    assert values.json_text(b"\x0f\x0b\x08" + bytes(8)) == b'"00:00:00"'
    assert values.json_text(b"\x0f\xfc\x02hi") == b'"hi"'


@given(st.binary(max_size=200))
def test_any_bytes(raw: bytes) -> None:
    """Bytes that are no document raise Broken and nothing else."""
    for read in (values.json_text, lambda data: values.json_diff_text(b"j", data)):
        with suppress(Broken):
            read(raw)


def test_a_document_that_refers_to_itself() -> None:
    """An array whose elements are the array itself ends with an error, not with the memory."""
    array = struct.pack("<HH", 8, 4 + 8 * 3) + (b"\x02" + struct.pack("<H", 0)) * 8
    with pytest.raises(Broken):
        values.json_text(b"\x02" + array)


def test_partial_updates_are_calls() -> None:
    """Diffs of one kind share a call; calls nest in the order in which they apply."""

    def diff(operation: int, path: bytes, document: Any = None) -> bytes:
        head = bytes([operation, len(path)]) + path
        if operation == 2:
            return head
        kind, raw = pack(document, False)
        return head + bytes([len(raw) + 1, kind]) + raw

    assert values.json_diff_text(b"j", b"") == b""
    two = diff(0, b"$.a", 1) + diff(0, b"$.b", "x")
    assert values.json_diff_text(b"j", two) == b"JSON_REPLACE(j, '$.a', 1, '$.b', \"x\")"
    mixed = diff(0, b"$.a", 1) + diff(2, b"$.b") + diff(1, b"$.c[0]", 2) + diff(1, b"$.d", 3)
    assert values.json_diff_text(b"j", mixed) == (
        b"JSON_INSERT(JSON_ARRAY_INSERT(JSON_REMOVE(JSON_REPLACE(j, '$.a', 1), '$.b'), '$.c[0]', 2), '$.d', 3)"
    )


def test_column_compression() -> None:
    """MariaDB's compressed values: plain behind a zero byte, deflated otherwise; text and bytes."""
    raw = "é".encode() * 50
    deflated = b"\x81" + bytes([len(raw)]) + zlib.compress(raw)
    assert values.uncompressed(b"\0" + raw, True, "utf-8") == raw
    assert values.uncompressed(deflated, True, "utf-8") == raw
    assert values.uncompressed(deflated, False, "utf-8").decode() == raw.decode("latin-1")
    for broken in (b"\x81", b"\x81\x05abc", b"\x11abc"):
        with pytest.raises(Broken):
            values.uncompressed(broken, True, "utf-8")
