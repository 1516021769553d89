"""Place: a position as a person writes it: `journal:offset`, `gtid:SET`, `time:ISO`, `earliest`, `latest`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

FORMS = "JOURNAL:OFFSET, gtid:SET, time:YYYY-MM-DDTHH:MM:SS[+HH:MM], earliest or latest; prefix 2/ to address source 2"

END_FORMS = "JOURNAL:OFFSET or gtid:SET"

_EPOCH = datetime.fromtimestamp(0, UTC)
_ADDRESS = re.compile(r"(?P<journal>[^:\s]+\.\d+):(?P<offset>\d+)")


@dataclass(frozen=True, slots=True)
class Place:
    """Exactly one of journal and offset, gtid, timestamp_ms, or end.

    end: `earliest` or `latest`.
    part: number of the source, if there are several; 0 for all of them.
    """

    journal: str = ""
    offset: int = 0
    gtid: str = ""
    timestamp_ms: int = 0
    end: str = ""
    part: int = 0

    def __str__(self) -> str:
        """Return one of FORMS; a time is in UTC."""
        part = f"{self.part}/" if self.part else ""
        if self.timestamp_ms:
            moment = _EPOCH + timedelta(milliseconds=self.timestamp_ms)
            return f"{part}time:{moment.isoformat(timespec='milliseconds')}"
        return part + (self.end or (f"gtid:{self.gtid}" if self.gtid else f"{self.journal}:{self.offset}"))

    @classmethod
    def parse(cls, text: str) -> Place:
        """Parse one of FORMS. A time without a zone is local; the prefix `2/` addresses source 2. Raises ValueError."""
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
                raise ValueError(f"invalid time {rest!r}: give one like 2026-01-31T12:00:00+01:00") from error
        address = _ADDRESS.fullmatch(text)
        if address is None:
            raise ValueError(f"invalid position {text!r}: give {FORMS}")
        return cls(journal=address["journal"], offset=max(4, int(address["offset"])))


def end_of_read(text: str) -> Place | None:
    """Parse the position where a private read ends; "" gives None, which means no end. Raises ValueError."""
    place = Place.parse(text) if text else None
    if place is not None and not (place.journal or place.gtid):
        raise ValueError(f"invalid end {text!r}: give {END_FORMS}")
    return place
