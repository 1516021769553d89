"""Place: what a person writes to name a position: `journal:offset`, `gtid:SET`, `time:ISO`, `earliest`, `latest`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

FORMS = "JOURNAL:OFFSET, gtid:SET, time:YYYY-MM-DDTHH:MM:SS[+HH:MM], earliest or latest; 2/ before it: of source 2"

END_FORMS = "JOURNAL:OFFSET or gtid:SET"

_ADDRESS = re.compile(r"(?P<journal>[^:\s]+\.\d+):(?P<offset>\d+)")


@dataclass(frozen=True, slots=True)
class Place:
    """One of: journal and offset; gtid set; time; end (`earliest` or `latest`). part: the number of the one of several
    sources that it is about, 0 for all.
    """

    journal: str = ""
    offset: int = 0
    gtid: str = ""
    timestamp_ms: int = 0
    end: str = ""
    part: int = 0

    @classmethod
    def parse(cls, text: str) -> Place:
        """A time without zone is local. `2/` before it means the second of several sources. Raises ValueError."""
        text = text.strip()
        number, slash, place = text.partition("/")
        if slash and number.isascii() and number.isdecimal() and int(number):
            return replace(cls.parse(place), part=int(number))
        if text in ("earliest", "latest"):
            return cls(end=text)
        kind, _, rest = text.partition(":")
        if kind == "gtid" and rest.strip():
            return cls(gtid="".join(rest.split()))
        if kind == "time":
            try:
                return cls(timestamp_ms=int(datetime.fromisoformat(rest.strip()).timestamp() * 1000))
            except ValueError as error:
                raise ValueError(f"{rest!r} is no time like 2026-01-31T12:00:00+01:00") from error
        address = _ADDRESS.fullmatch(text)
        if address is None:
            raise ValueError(f"{text!r} is no position: give {FORMS}")
        return cls(journal=address["journal"], offset=max(4, int(address["offset"])))


def end_of_read(text: str) -> Place | None:
    """Where a private read ends; None for "", no end. Raises ValueError."""
    place = Place.parse(text) if text else None
    if place is not None and not (place.journal or place.gtid):
        raise ValueError(f"{text!r}: a read ends at {END_FORMS}")
    return place
