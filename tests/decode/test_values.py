"""Partial updates of JSON and compressed columns, which Python code decodes."""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.decode import values
from canal_ha.decode.kernel.primitives import Broken
from tests.decode.documents import document


@given(st.binary(max_size=200))
def test_any_bytes(raw: bytes) -> None:
    """Any bytes give a text or raise Broken."""
    with suppress(Broken):
        values.json_diff_text(b"j", raw)


def test_partial_updates_are_calls() -> None:
    """Diffs of one kind share a call; calls nest in the order in which they apply."""

    def diff(operation: int, path: bytes, value: Any = None) -> bytes:
        head = bytes([operation, len(path)]) + path
        if operation == 2:
            return head
        raw = document(value)
        return head + bytes([len(raw)]) + raw

    assert values.json_diff_text(b"j", b"") == b""
    two = diff(0, b"$.a", 1) + diff(0, b"$.b", "x")
    assert values.json_diff_text(b"j", two) == b"JSON_REPLACE(j, '$.a', 1, '$.b', \"x\")"
    mixed = diff(0, b"$.a", 1) + diff(2, b"$.b") + diff(1, b"$.c[0]", 2) + diff(1, b"$.d", 3)
    assert values.json_diff_text(b"j", mixed) == (
        b"JSON_INSERT(JSON_ARRAY_INSERT(JSON_REMOVE(JSON_REPLACE(j, '$.a', 1), '$.b'), '$.c[0]', 2), '$.d', 3)"
    )


def test_column_compression() -> None:
    """MariaDB's compressed values are read: plain after a zero byte or deflated, as text or bytes."""
    raw = "é".encode() * 50
    deflated = b"\x81" + bytes([len(raw)]) + zlib.compress(raw)
    assert values.uncompressed(b"\0" + raw, True, "utf-8") == raw
    assert values.uncompressed(deflated, True, "utf-8") == raw
    assert values.uncompressed(deflated, False, "utf-8").decode() == raw.decode("latin-1")
    for broken in (b"\x81", b"\x81\x05abc", b"\x11abc"):
        with pytest.raises(Broken):
            values.uncompressed(broken, True, "utf-8")
