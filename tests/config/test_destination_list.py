"""canal.destinations is changed in the text of canal.properties, and nothing else is."""

from __future__ import annotations

import javaproperties
import pytest

from canal_ha.config.destination_list import names_in, with_names


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "canal.destinations = a,b\n"),
        ("canal.port = 1", "canal.port = 1\ncanal.destinations = a,b\n"),
        ("# list\ncanal.destinations = a\ncanal.port = 1\n", "# list\ncanal.destinations = a,b\ncanal.port = 1\n"),
        ("canal.destinations = a,\\\n  c\ncanal.ip =\n", "canal.destinations = a,b\ncanal.ip =\n"),
        ("canal.destinations:x\n canal.destinations=y\n", "canal.destinations:x\ncanal.destinations = a,b\n"),
    ],
)
def test_the_list_is_replaced_where_it_counts(before: str, after: str) -> None:
    """Comments and other lines stay; of several lines the last one counts; without one it comes at the end."""
    assert with_names(before, ("a", "b")) == after
    assert names_in(after) == ("a", "b")
    others = {key: value for key, value in javaproperties.loads(before).items() if key != "canal.destinations"}
    assert {key: value for key, value in javaproperties.loads(after).items() if key != "canal.destinations"} == others


def test_a_list_with_a_placeholder_is_not_plain() -> None:
    """Nobody can tell which part of it to change."""
    assert names_in("canal.destinations = a,${env:MORE}\n") is None
    assert names_in("canal.port = 1\n") == ()
