"""Positions of several sources: the source of each part, and questions to all sources."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from canal_ha.config.model import GroupMember, InstanceConfig, SourceConfig, WhenLost
from canal_ha.errors import CanalError, SourceRefused, SourceUnavailable
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.source.group import GroupView, as_read, elsewhere, parts

ONE, TWO = SourceConfig("one"), SourceConfig("two", 3307)
BOTH = InstanceConfig("both", ONE, group=(GroupMember(ONE, SourceConfig("standby")), GroupMember(TWO)))
FIRST = LogPosition("bin.000001", 100, 5000, address="one", part=1)
SECOND = LogPosition("bin.000009", 7, 6000, address="two", port=3307, part=2)


@dataclass
class FakeView:
    """A view that answers with positions of its own address."""

    address: str
    version: str = "9"
    error: CanalError | None = None
    asked: list[object] = field(default_factory=list)

    def newest(self) -> LogPosition:
        return self._at("newest")

    def start(self, kept: LogPosition | None) -> LogPosition:
        return self._at(kept)

    def find(self, place: Place) -> LogPosition:
        return self._at(place)

    def instead(self, cursor: LogPosition, when: WhenLost) -> LogPosition:
        return self._at(when)

    def _at(self, question: object) -> LogPosition:
        self.asked.append(question)
        if self.error:
            raise self.error
        return LogPosition("bin.000002", 4, address=self.address)


def view(*views: FakeView, lost: int = 0) -> GroupView:
    """Return a group view. lost: the number of the source whose journals are gone."""
    return GroupView(BOTH, views, lambda part, at: part == lost)


def test_whose_is_whose() -> None:
    """A part belongs to the source with its address, or its standby's; without such a source, its number decides."""
    assert parts(BOTH, FIRST.beside([SECOND])) == (FIRST, SECOND)
    swapped = replace(FIRST, part=2).beside([replace(SECOND, part=1)])
    assert parts(BOTH, swapped) == (FIRST, SECOND)
    standby = replace(FIRST, address="standby")
    assert parts(BOTH, SECOND.beside([standby])) == (standby, SECOND)
    elsewhere = replace(FIRST, address="renamed")
    assert parts(BOTH, SECOND.beside([elsewhere])) == (elsewhere, SECOND)


def test_a_source_joins() -> None:
    """A cursor of one source stays with its server; a new source begins at its time or at the configured start."""
    alone = replace(FIRST, part=0)
    first, second = parts(BOTH, alone)
    assert first == FIRST
    assert (second.part, second.journal, second.timestamp_ms) == (2, "", 5000 + BOTH.fallback_interval_s * 1000)
    there = replace(BOTH, group=(BOTH.group[0], GroupMember(replace(TWO, journal="bin.000003", position=50))))
    second = parts(there, alone)[1]
    assert (second.journal, second.offset) == ("bin.000003", 50)
    second = parts(BOTH, replace(alone, address="two", port=3307))[1]
    assert (second.journal, second.offset) == ("bin.000001", 100)
    assert parts(BOTH, alone, whole=False) == (FIRST,)


def test_all_are_asked() -> None:
    """An answer has a part for every source; if one source fails, the error is raised after all were asked."""
    one, two = FakeView("one"), FakeView("two", version="11")
    both = view(one, two)
    assert both.version == "9, 11"
    assert [each.address for each in both.newest().parts] == ["one", "two"]
    assert both.start(FIRST.beside([SECOND])).part == 1
    assert (one.asked[-1], two.asked[-1]) == (FIRST, SECOND)
    one.error = SourceUnavailable("one is down")
    with pytest.raises(SourceUnavailable):
        both.newest()
    assert two.asked[-1] == "newest"


def test_places() -> None:
    """A time or an end is found in every source; a journal needs the number of its source."""
    one, two = FakeView("one"), FakeView("two")
    both = view(one, two)
    assert len(both.find(Place.parse("time:2026-01-31T12:00:00")).parts) == 2
    assert len(both.find(Place.parse("latest")).parts) == 2
    found = both.find(Place.parse("2/bin.000002:4"))
    assert (found.part, found.address, found.others) == (2, "two", ())
    assert two.asked[-1] == Place(journal="bin.000002", offset=4)
    for text, told in (("bin.000002:4", "2 sources"), ("gtid:x:1", "2 sources"), ("3/latest", "no source 3")):
        with pytest.raises(SourceRefused, match=told):
            both.find(Place.parse(text))


def test_one_lost_place_is_replaced() -> None:
    """If one source purged its journal, the positions of the others stay."""
    one, two = FakeView("one"), FakeView("two")
    instead = view(one, two, lost=2).instead(FIRST.beside([SECOND]), WhenLost.EARLIEST)
    assert (instead.of(1), one.asked) == (FIRST, [])
    assert instead.of(2) == LogPosition("bin.000002", 4, address="two", part=2)


def test_the_durable_choice_of_each_source_comes_before_its_cursor() -> None:
    """Each source of a group is read from the server that was switched to last, else from that of the newest cursor."""
    standby = SourceConfig("spare", 3308)
    config = replace(BOTH, group=(GroupMember(BOTH.group[0].master, standby), BOTH.group[1]))
    cursor = FIRST.beside([SECOND])
    read = as_read(config, [cursor], ("spare:3308", ""))
    assert [member.master for member in read.members] == [standby, TWO]
    assert read.members[0].standby == BOTH.group[0].master
    assert "and both/1 reads spare:3308 now" in elsewhere(read.members[0], FIRST)
    assert as_read(config, [cursor], ()).group == config.group
