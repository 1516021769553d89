"""Diffs of partial JSON updates, applied to documents."""

from __future__ import annotations

import pytest

from canal_ha.decode.json_update import INSERT, REMOVE, REPLACE, Diff, updated
from canal_ha.decode.kernel.primitives import Broken
from lab.column_kinds import json_bytes

TWO = json_bytes(2)


@pytest.mark.parametrize(
    ("document", "diff", "expected"),
    [
        ({"a": [1, 5]}, (REPLACE, "$.a[last]", TWO), '{"a": [1, 2]}'),
        ([{"b": 1}, 7], (REPLACE, "$[last-1].b", TWO), '[{"b": 2}, 7]'),
        ([1, 5], (REMOVE, "$[last-1]", b""), "[5]"),
        ([1, 5], (INSERT, "$[last]", TWO), "[1, 2, 5]"),
    ],
)
def test_elements_counted_from_the_end(document: object, diff: Diff, expected: str) -> None:
    """MySQL logs such a path as the statement wrote it."""
    assert updated(json_bytes(document), [diff]).decode() == expected


def test_an_element_before_the_first_one_does_not_fit() -> None:
    """Python would count it from the end once more."""
    with pytest.raises(Broken, match="does not fit"):
        updated(json_bytes([1, 5]), [(REPLACE, "$[last-2]", TWO)])


def test_new_keys_stand_where_mysql_sorts_them() -> None:
    """By length, then by bytes; also when several come at once."""
    diffs = [(INSERT, f"$.{key}", TWO) for key in ("ccc", "b", "aa")]
    assert updated(json_bytes({"bb": 1}), diffs).decode() == '{"b": 2, "aa": 2, "bb": 1, "ccc": 2}'
