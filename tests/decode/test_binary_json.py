"""MySQL's texts of JSON documents as binary documents."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.decode.binary_json import document
from canal_ha.decode.kernel.documents import document_text

DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
    max_leaves=20,
)


@given(DOCUMENTS)
def test_a_document_has_the_same_values(value: object) -> None:
    """The text of the binary document has the values of the text, with members in the same order."""
    text = document_text(document(json.dumps(value, ensure_ascii=False).encode()))
    assert json.loads(text) == value
    assert list(map(str, json.loads(text))) == list(map(str, value)) if isinstance(value, dict) else True


@given(st.integers(1, 65).flatmap(lambda digits: st.tuples(st.integers(0, 10**digits - 1), st.integers(0, 30))))
def test_long_numbers_keep_their_digits(number: tuple[int, int]) -> None:
    """A number with more digits than a DOUBLE has, or with zeros behind its fraction, is a DECIMAL."""
    text = f"-{number[0]}.{'3' * number[1]}10"
    assert Decimal(document_text(document(text.encode())).decode()) == Decimal(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1.5", 11),
        ("1.0", 11),
        ("1e20", 11),
        ("-2.5e-10", 11),
        ("1.50", 15),
        ("0.1000000000000000055", 15),
        ("123456789012345678901", 15),
        ("18446744073709551615", 10),
        ('"base64:type252:AP8="', 15),
        ('"base64:type999:AP8="', 12),
        ('"base64:type15:AP8"', 12),
    ],
)
def test_kinds(text: str, kind: int) -> None:
    """The kinds of values follow from how MySQL writes them."""
    assert document(text.encode())[0] == kind


@pytest.mark.parametrize("text", ["", "{", "[1,]", "nul", '"\\x"', "\xff"])
def test_other_texts_are_an_error(text: str) -> None:
    """A text that is no JSON raises ValueError."""
    with pytest.raises(ValueError, match=r".+"):
        document(text.encode("latin-1"))
