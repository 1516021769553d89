"""MySQL's binary JSON as text."""

from __future__ import annotations

import json
import random
import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.decode.kernel.documents import document_text
from canal_ha.decode.kernel.primitives import Broken
from tests.decode.documents import STRINGS, Raw, document, drawn, opaque, pack, shown, sized

TEXTS = st.text(max_size=20) | st.sampled_from(STRINGS) | st.text('ab"\\\n\t\x01\x7f\x80\xa0\xa1é', max_size=30)
DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.integers(-40000, 70000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)


@given(DOCUMENTS, st.booleans())
def test_documents_as_canal_shows_them(value: Any, large: bool) -> None:
    """Documents in the small and the large format have canal's text, which is JSON of the same value."""
    text = document_text(document(value, large)).decode()
    assert text == shown(value)
    assert json.loads(text) == value


def test_spelling() -> None:
    """Separators and escapes are canal's."""
    raw = document({"a": [1, None, True], 'q"': "\n\x01\x7f/é"})
    assert document_text(raw).decode() == '{"a": [1, null, true], "q\\"": "\\n\\u0001\\u007f/é"}'
    assert document_text(b"") == b""


@pytest.mark.parametrize(
    "char", [chr(code) for code in (*range(0x180), 0x7FF, 0x800, 0xFFFD, 0xFFFF, 0x10000, 0x10FFFF)]
)
def test_every_escape(char: str) -> None:
    """Each character is escaped as in canal, wherever it stands in a text."""
    for before, after in ((0, 0), (1, 0), (0, 3), (6, 1), (7, 8), (8, 0), (20, 20)):
        text = "x" * before + char + "y" * after
        assert document_text(document(text)).decode() == shown(text)


def test_malformed_texts() -> None:
    """Malformed UTF-8 becomes U+FFFD as in Java; a surrogate becomes a single one."""
    for raw, text in (
        (b"\xff", "\ufffd"),
        (b'a\xc2"', 'a\ufffd\\"'),
        (b"\xed\xa0\x80!", "\ufffd!"),
        (b"\xc2\x85\xe4\xb8", "\\u0085\ufffd"),
    ):
        assert document_text(b"\x0c" + sized(raw)).decode() == f'"{text}"'


def test_offsets_beyond_64_kilobytes() -> None:
    """A document with offsets beyond 64 KB and small containers inside has canal's text."""
    small = {"k": ["é", 70000, -1], "": {}}
    inner = Raw(*pack(small, False))
    items = [item for number in range(700) for item in ("long " * 20 + str(number), 2.5, None, 1 << 40)]
    values = {f"key {number:03}" + "x" * 200: items[number : number + 3] for number in range(400)}
    text = document_text(document({"a": items, "b": values, "c": inner, "d": [70000, -70000, 7]}, large=True)).decode()
    assert text == shown({"a": items, "b": values, "c": small, "d": [70000, -70000, 7]})
    assert len(text) > 3 << 16


def test_numbers_without_sign() -> None:
    """Unsigned numbers are read, whether they stand in their entry or at an offset."""
    assert document_text(b"\x06\xff\xff") == b"65535"
    assert document_text(b"\x08\xff\xff\xff\xff") == b"4294967295"
    for large in (False, True):
        made = document_text(document([Raw(6, b"\xff\xff"), Raw(8, b"\xff" * 4), Raw(10, b"\xff" * 8)], large))
        assert made == b"[65535, 4294967295, 18446744073709551615]"


def test_opaque_values() -> None:
    """An opaque DECIMAL is a number, dates and times are texts, and other types show their bytes."""
    assert document_text(b"\x0f\xf6\x04\x04\x02\x81\x32") == b"1.50"
    noon = (((2024 * 13 + 2) << 5 | 29) << 17 | 12 << 12) << 24
    for code in (7, 10, 12):
        for value in (noon, -noon):
            made = document_text(document(opaque(code, struct.pack("<q", value))))
            assert made == b'"2024-02-29 12:00:00.000000"'
        assert document_text(document(opaque(code, bytes(8)))) == b'"0000-00-00 00:00:00"'
    for value, text in ((-(1 << 36), b"-01:00:00.000000"), (12 << 36 | 5, b"12:00:00.000005"), (0, b"00:00:00")):
        assert document_text(document(opaque(11, struct.pack("<q", value)))) == b'"' + text + b'"'
    assert document_text(b"\x0f\xfc\x02hi") == b'"hi"'
    assert document_text(document([opaque(246, b"\x02\x00\x99"), opaque(3, b'"')])) == b'[25, "\\""]'


@given(st.binary(max_size=200))
def test_any_bytes(raw: bytes) -> None:
    """Any bytes give a text or raise Broken."""
    with suppress(Broken):
        document_text(raw)


@given(st.integers(0, 1 << 32), st.data())
def test_damaged_documents(seed: int, data: st.DataObject) -> None:
    """A document with a changed byte gives a text or raises Broken; a truncated one raises Broken."""
    raw = drawn(random.Random(seed))
    at = data.draw(st.integers(0, len(raw) - 1))
    with suppress(Broken):
        document_text(raw[:at] + bytes([data.draw(st.integers(0, 255))]) + raw[at + 1 :])
    if at:
        with pytest.raises(Broken):
            document_text(raw[:at])


def test_a_document_that_refers_to_itself() -> None:
    """An array that contains itself raises Broken before memory runs out."""
    itself = b"\x02" + struct.pack("<HHBH", 1, 7, 2, 0)
    with pytest.raises(Broken, match="too deep"):
        document_text(itself)
    inner = pack(["x" * 1000], False)[1]
    entries = (b"\x02" + struct.pack("<H", 4 + 300 * 3)) * 300
    with pytest.raises(Broken, match="refers to itself"):
        document_text(b"\x02" + struct.pack("<HH", 300, 4 + len(entries) + len(inner)) + entries + inner)
