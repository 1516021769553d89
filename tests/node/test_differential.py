"""Random DDL and DML: every delivered row has the names and values that SELECT says.

This is a short run of `python -m lab.differential`; deploy/test-long.sh runs 20,000 statements on each server.
"""

from __future__ import annotations

import pytest

from lab.differential.__main__ import run
from lab.differential.dialect import without
from lab.differential.round import Image, Metadata


@pytest.mark.real
@pytest.mark.parametrize(
    ("server", "metadata", "image"),
    [
        ("mariadb", "MINIMAL", "FULL"),
        ("mysql", "MINIMAL", "FULL"),
        ("mariadb", "FULL", "NOBLOB"),
        ("mysql", "FULL", "MINIMAL"),
    ],
)
def test_no_name_and_no_value_is_wrong(server: str, metadata: Metadata, image: Image) -> None:
    """After each of 150 statements the delivered rows equal SELECT's: warm, lagging, ahead, taken over, and cold.

    Every statement is logged, so only the cold node may refuse rows.
    """
    tally = run(server, 21, 150, without("unlogged"), metadata, image)
    print(tally.table(server))
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.statements == 150
    assert all(tally.situations[name].rows for name in ("warm", "lagging", "ahead", "taken over", "cold"))
