"""Coverage: which ranges of one source a store holds, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from canal_ha.decode.history.ranges import Range, Ranges
from canal_ha.model.position import LogPosition


@dataclass(slots=True)
class Coverage:
    """The coverage of one source.

    expired: everything before it is gone, whatever another node records.
    times: see Kept.
    """

    ranges: Ranges = field(default_factory=Ranges)
    expired: LogPosition | None = None
    times: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Coverage:
        """Read it from a JSON object."""
        known = cls(
            expired=from_place(body["expired"]) if body.get("expired") else None, times=dict(body.get("times", {}))
        )
        for start, end in body["ranges"]:
            known.ranges.add(from_place(start), from_place(end))
        return known

    def add(self, ranges: Sequence[Range], times: Mapping[str, int]) -> None:
        """See HistoryStore.cover."""
        for known in ranges:
            self.ranges.add(known.start, known.end)
        self.times = dict(times)

    def body(self) -> dict[str, Any]:
        """Return it as a JSON object, without what is expired."""
        if self.expired is not None:
            self.ranges.forget_before(self.expired)
        ranges = [[place_of(known.start), place_of(known.end)] for known in self.ranges]
        return {"ranges": ranges, "expired": self.expired and place_of(self.expired), "times": self.times}


def place_of(at: LogPosition) -> list[object]:
    """Return a position without its time, as a JSON array."""
    return [at.journal, at.offset, at.consumed, at.sub_index]


def from_place(place: Sequence[Any]) -> LogPosition:
    """Read what `place_of` returned."""
    return LogPosition(str(place[0]), int(place[1]), consumed=bool(place[2]), sub_index=int(place[3]))
