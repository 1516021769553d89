"""Positions as people write them."""

from __future__ import annotations

import pytest

from canal_ha.model.place import Place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("mysql-bin.000012:4711", Place("mysql-bin.000012", 4711)),
        ("b.c.000001:0", Place("b.c.000001", 4)),
        ("gtid:0-1-2, 1-1-7", Place(gtid="0-1-2,1-1-7")),
        ("time:1970-01-01T00:00:01+00:00", Place(timestamp_ms=1000)),
        ("earliest", Place(end="earliest")),
        (" latest ", Place(end="latest")),
    ],
)
def test_what_is_understood(text: str, place: Place) -> None:
    """Each form is parsed; an offset before the first event becomes that of the first event."""
    assert Place.parse(text) == place
    assert Place.parse(str(place)) == place


@pytest.mark.parametrize("text", ["", "mysql-bin:4", "mysql-bin.000001", "gtid:", "time:yesterday", "newest"])
def test_what_is_not(text: str) -> None:
    """Any other text raises ValueError."""
    with pytest.raises(ValueError, match=r"invalid (position|time)"):
        Place.parse(text)
