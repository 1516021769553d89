"""TapRecords: how the taps of a node have ended, and which of them cannot be opened again and again. Reactor thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum

from canal_ha import logs
from canal_ha.model.alarm import NodeAlarm

TAP = "tap"  # the alarm: taps of a server cannot be opened
FAILURES = 3  # in a row, from which on it is an alarm
LASTS_S = 600.0  # an alarm without another attempt: perhaps the streams have left

LOG = logs.get(__name__)


class TapEnd(Enum):
    """Why a tap has ended."""

    UNOPENED = "unopened"  # it could not connect, or the server refused the dump
    LOST = "lost"  # the server has ended the dump, or the connection broke
    SILENT = "silent"  # nothing came for too long
    RESET = "reset"  # the server has begun its binlog anew
    LARGE_EVENT = "large_event"  # too large for the memory of a tap
    UNUSED = "unused"  # no stream followed any more
    BROKEN = "broken"  # an error of this program
    STOPPED = "stopped"  # the node stops


@dataclass(slots=True)
class _Failing:
    """Taps of one server that could not be opened, one after another. since, last: s since 1970."""

    address: str
    since: float
    last: float = 0.0
    count: int = 0
    error: str = ""


class TapRecords:
    """See the module.

    ended: how many taps have ended, by the value of TapEnd.
    addresses: of the servers of which a tap has begun since the node started.
    """

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter({each.value: 0 for each in TapEnd})
        self.addresses: set[str] = set()
        self._failing: dict[Hashable, _Failing] = {}

    def flows(self, key: Hashable, address: str, replica: str) -> None:
        """A tap begins.

        key: the account and the address.
        address: host:port of the server.
        replica: its name in the server's list of replicas.
        """
        self._failing.pop(key, None)
        self.addresses.add(address)
        LOG.info("tap.began", source=address, replica=replica)

    def over(self, key: Hashable, address: str, replica: str, reason: TapEnd, error: str, streams: int) -> None:
        """A tap that began has ended.

        key, address, replica: as for `flows`.
        reason, error: why.
        streams: how many followed.
        """
        self.ended[reason.value] += 1
        LOG.info("tap.ended", source=address, replica=replica, reason=reason.value, error=error, streams=streams)

    def failed(self, key: Hashable, address: str, error: str, now: float) -> None:
        """A tap could not be opened. Later failures in a row are not logged.

        key, address: as for `flows`.
        error: why.
        now: s since 1970.
        """
        self.ended[TapEnd.UNOPENED.value] += 1
        failing = self._failing.setdefault(key, _Failing(address, now))
        if now - failing.last > LASTS_S:
            failing.since, failing.count = now, 0
        failing.count += 1
        failing.last, failing.error = now, error
        if failing.count < FAILURES:
            LOG.info("tap.failed", source=address, error=error)
        elif failing.count == FAILURES:
            LOG.warning("tap.failing", source=address, error=error, advice=_advice(failing))

    def alarms(self, now: float) -> tuple[NodeAlarm, ...]:
        """Return the alarms of this moment. now: s since 1970."""
        return tuple(
            NodeAlarm(TAP, "", _advice(each), each.since)
            for each in self._failing.values()
            if each.count >= FAILURES and now - each.last <= LASTS_S
        )


def _advice(failing: _Failing) -> str:
    return (
        f"{failing.address}: the one dump for all its streams cannot be opened: {failing.error}. Each stream opens a"
        " dump of its own instead, and the node tries again. Correct what the error names"
    )
