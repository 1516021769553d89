"""Whether a GTID set of MySQL has a transaction."""

from __future__ import annotations

import pytest

from canal_ha.model.gtid_set import GtidSet

KNOWN = GtidSet("AAAA:1-5:7:blue:2-3,\nbbbb:9")


@pytest.mark.parametrize("gtid", ["aaaa:1", "aaaa:5", "aaaa:7", "aaaa:blue:2", "aaaa:blue:3", "bbbb:9"])
def test_a_set_has_its_transactions(gtid: str) -> None:
    """Sources and tags compare in lower case, and intervals include both ends."""
    assert KNOWN.has(gtid)


@pytest.mark.parametrize("gtid", ["aaaa:6", "aaaa:8", "aaaa:blue:1", "aaaa:blue:4", "aaaa:red:2", "bbbb:blue:9", "c:1"])
def test_a_set_has_no_others(gtid: str) -> None:
    """A tag has numbers of its own."""
    assert not KNOWN.has(gtid)
