"""The first packets of a dump: pure."""

from __future__ import annotations

import pytest

from canal_ha.decode.kernel.kinds import FORMAT_DESCRIPTION
from canal_ha.source.connection.dump_head import behind_description, head

DESCRIPTION = b"\0" + bytes(4) + bytes([FORMAT_DESCRIPTION]) + bytes(90)


@pytest.mark.parametrize("rest", [b"", b"\x05\0\0\x02\0abcd", b"\x05\0\0\x02\0a"])
def test_what_a_dump_brings_behind_the_description_is_found(rest: bytes) -> None:
    """It may end inside a packet."""
    assert behind_description(head("mysql-bin.000001", 1234, DESCRIPTION, checksum=True) + rest) == rest


def test_without_a_description_nothing_is_behind_it() -> None:
    """A packet of the head is not complete."""
    assert behind_description(b"") == b""
    assert behind_description(head("mysql-bin.000001", 1234, DESCRIPTION, checksum=True)[:40]) == b""
