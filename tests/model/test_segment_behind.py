"""Segment.behind(): the entries that follow a client's position."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Source
from tests.segments import Item, segment


def at(offset: int, sub: int = 0, journal: str = "mysql-bin.000002") -> LogPosition:
    return LogPosition(journal=journal, offset=offset, sub_index=sub)


def test_journals_decide_first() -> None:
    """A segment of a later journal passes whole, one of an earlier journal not at all; journals compare by number."""
    items = [Item(100), Item(200)]
    assert segment(items, journal="mysql-bin.000003").behind(at(999)) is not None
    assert segment(items, journal="mysql-bin.000001").behind(at(4)) is None
    assert segment(items, journal="mysql-bin.1000000").behind(at(999, journal="mysql-bin.999999")) is not None


def test_another_servers_positions_skip_nothing() -> None:
    """A position on another server skips nothing, because its journal and offset mean nothing on this server."""
    there = replace(segment([Item(100)], journal="mysql-bin.000001"), source=Source("127.0.0.1", 3306, "u-2"))
    assert there.behind(replace(at(999), server="u-1")) is there
    assert there.behind(replace(at(999), server="u-2")) is None


def test_entries_that_share_an_offset_are_told_apart_by_their_index() -> None:
    """Of entries that share an offset, as in a compressed payload, those with a greater sub-index follow."""
    rest = segment([Item(100, sub=index, body=b"%d" % index) for index in range(4)]).behind(
        at(100, 1, "mysql-bin.000001")
    )
    assert rest is not None
    assert list(rest.entries()) == [b"2", b"3"]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.integers(0, 40))
def test_the_rest_is_exactly_what_lies_behind(gaps: list[int], cut: int) -> None:
    """For any position the rest has the entries with a greater offset, with their own bytes and positions."""
    offsets = [sum(gaps[: index + 1]) for index in range(len(gaps))]
    whole = segment([Item(offset, body=b"x" * offset) for offset in offsets])
    rest = whole.behind(at(cut, journal="mysql-bin.000001"))
    expected = [offset for offset in offsets if offset > cut]
    if not expected:
        assert rest is None
        return
    assert rest is not None
    assert list(rest.offsets) == expected
    assert [len(entry) for entry in rest.entries()] == expected
    assert [rest.position(index).offset for index in range(len(rest))] == expected


def test_skipping_knows_sources() -> None:
    """A position skips entries of its own source only, even if another source has the same journal and offsets."""
    last = replace(at(200, journal="mysql-bin.000001"), part=1, others=(LogPosition("mysql-bin.000001", 4, part=2),))
    first, second = (replace(segment([Item(100), Item(200)]), part=part) for part in (1, 2))
    assert first.behind(last) is None
    assert second.behind(last) is second
