"""Decide which alarms of a stream begin and end, from its figures. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from canal_ha.instance.status import StreamStatus
from canal_ha.model.position import LogPosition

PURGE = "purge"
LOST = "lost"
LAG = "lag"
UNMOVED = "unmoved"
BLOCKED = "blocked"
DENIED = "denied"
MEANINGS = {
    PURGE: "the source is about to purge the journal of its cursor, or has purged it",
    LOST: "it has stopped, because the source has purged the journal of its cursor",
    LAG: "it lags too far behind the source",
    UNMOVED: "its cursor stands still while rows wait",
    BLOCKED: "its ring is full of batches that it has not acknowledged, so the source is not read",
    DENIED: "ZooKeeper denies the node the right to write its cursor, which advances in memory",
}
LAG_LASTS_S = 10.0  # a new feed seems late until the source has said that nothing is newer, which takes a second
PURGE_MOST_S = 24 * 3600.0  # an expiry of a month is not worth an alarm for a week


@dataclass(frozen=True, slots=True)
class AlarmChange:
    """An alarm begins, or is over. facts: for the log."""

    alarm: str
    begins: bool
    facts: dict[str, object]


@dataclass(frozen=True, slots=True)
class Outlook:
    """Until when the source keeps the journal of a cursor.

    purge_in_s: 0.0 when it is gone, -1.0 when there is no end in sight; expiry_s: of the source's journals.
    """

    purge_in_s: float = -1.0
    expiry_s: float = 0.0

    @property
    def near(self) -> bool:
        """Within the last quarter of the journal's life, or its last day."""
        return 0 <= self.purge_in_s < min(PURGE_MOST_S, self.expiry_s / 4) or self.purge_in_s == 0


NO_END = Outlook()


@dataclass(slots=True)
class Alarms:
    """The alarms of one stream. All times are in seconds; 0 turns an alarm off.

    lag_s: a stream may be so far behind its source; farther for LAG_LASTS_S is an alarm.
    unmoved_s: a cursor may stand still for so long while rows wait.
    blocked_s: a ring may be full of unacknowledged batches for so long.
    """

    lag_s: float
    unmoved_s: float
    blocked_s: float = 0.0
    active: set[str] = field(default_factory=set)
    _late_since: float | None = None
    _rested: tuple[int, Outlook] | None = None
    _cursor: LogPosition | None = None
    _moved_at: float = 0.0
    _flow: tuple[int, int] = (-1, -1)
    _flowed_at: float = 0.0

    def rests(self, rest: int | None, outlook: Outlook, now: float, denied: str = "") -> bool:
        """Whether the stream rests where it did at the last look, with nothing to tell of.

        rest: of the stream; see Stream.rest.
        outlook, now, denied: as for `step`.
        """
        state = None if rest is None or denied or self.active else (rest, outlook)
        same = state is not None and state == self._rested
        self._rested = state
        if same:  # a stream that rests is not late, and its cursor stands still for no other reason
            self._moved_at, self._late_since = now, None
        return same

    def step(
        self, stream: StreamStatus, outlook: Outlook, now: float, denied: str = "", *, lost: bool = False
    ) -> Iterator[AlarmChange]:
        """What changed since the last look.

        stream: its figures.
        outlook: of its cursor's journal.
        now: steady seconds.
        denied: why the store refuses this client's cursor, and no other; "" if it does not.
        lost: the stream has stopped, because the journal of its cursor is purged.
        """
        waits = stream.put_seq > stream.ack_seq
        if stream.cursor != self._cursor or not waits:
            self._cursor, self._moved_at = stream.cursor, now
        unmoved_for = now - self._moved_at
        cursor = str(stream.cursor)
        near = outlook.near and not lost
        yield from self._set(PURGE, near, purge_in_s=round(outlook.purge_in_s), cursor=cursor)
        yield from self._set(LOST, lost, cursor=cursor)
        behind = stream.seconds_behind
        if not 0 < self.lag_s < behind:
            self._late_since = None
        elif self._late_since is None:
            self._late_since = now
        late = self._late_since is not None and now - self._late_since >= LAG_LASTS_S
        yield from self._set(LAG, late, seconds_behind=round(behind, 1), cursor=cursor)
        unmoved = 0 < self.unmoved_s < unmoved_for
        yield from self._set(UNMOVED, unmoved, unmoved_s=round(unmoved_for), entries=stream.ring_entries, cursor=cursor)

        if not stream.blocked or (stream.put_seq, stream.ack_seq) != self._flow:
            self._flow, self._flowed_at = (stream.put_seq, stream.ack_seq), now
        blocked_for = now - self._flowed_at
        blocked = 0 < self.blocked_s < blocked_for
        facts = {"entries": stream.ring_entries, "bytes": stream.ring_bytes, "batches": len(stream.batches)}
        yield from self._set(BLOCKED, blocked, blocked_s=round(blocked_for), cursor=cursor, **facts)
        yield from self._set(DENIED, bool(denied), cursor=cursor, **({"error": denied} if denied else {}))

    def _set(self, alarm: str, on: bool, **facts: object) -> Iterator[AlarmChange]:
        if on != (alarm in self.active):
            (self.active.add if on else self.active.discard)(alarm)
            yield AlarmChange(alarm, on, facts)
