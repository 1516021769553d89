"""AlarmWatch: decides from the alarms of each moment what is told. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from canal_ha.alarms.notice import Notice, Subject

SETTLE_S: Mapping[str, float] = {"node.unready": 30.0}
"""How long these have to last: a start or a fail-over is no alarm."""
QUIET_S = 300.0
"""An alarm that was told is not told again within this time, so one that comes and goes often is told once."""


@dataclass(slots=True)
class _Seen:
    since: float
    text: str
    told: bool = False


@dataclass(slots=True)
class AlarmWatch:
    """The alarms of one node. node: registerIp:port."""

    node: str
    _active: dict[Subject, _Seen] = field(default_factory=dict)
    _told_at: dict[Subject, float] = field(default_factory=dict)

    def step(self, alarms: Mapping[Subject, str], now: float, wall: float) -> Iterator[Notice]:
        """Yield what has to be told. An alarm whose beginning was not told ends silently.

        alarms: those of this moment, with their texts.
        now: steady seconds.
        wall: s since 1970.
        """
        for subject in sorted(self._active.keys() - alarms.keys(), key=repr):
            seen = self._active.pop(subject)
            if seen.told:
                yield Notice(subject, self.node, False, seen.text, wall)
        for subject, text in alarms.items():
            seen = self._active.setdefault(subject, _Seen(now, text))
            settled = now - seen.since >= SETTLE_S.get(subject.alarm, 0.0)
            if not seen.told and settled and now - self._told_at.get(subject, -QUIET_S) >= QUIET_S:
                seen.told, seen.text = True, text
                self._told_at[subject] = now
                yield Notice(subject, self.node, True, text, wall)
        for subject in [each for each, at in self._told_at.items() if now - at >= QUIET_S]:
            del self._told_at[subject]
