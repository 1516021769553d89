"""IdleLimits: end a connection that reads nothing, or writes nothing, for too long (docs/protocol.md#idle)."""

from __future__ import annotations

from collections.abc import Callable

from canal_ha.model.clock import Clock, Timer


class IdleLimits:
    """Calls `expired` once, with a reason, when a limit is over. It has one timer, set anew only when that runs out."""

    def __init__(self, clock: Clock, expired: Callable[[str], None], limits_ms: tuple[int, int]) -> None:
        self._clock = clock
        self._expired = expired
        self._read_ms, self._write_ms = limits_ms
        self._heard_at = self._wrote_at = clock.seconds()
        self._timer: Timer | None = None
        self._look()

    def limit(self, limits_ms: tuple[int, int]) -> None:
        """Change both limits and restart both counts."""
        self._read_ms, self._write_ms = limits_ms
        self._heard_at = self._wrote_at = self._clock.seconds()
        self._look()

    def heard(self) -> None:
        """The client has sent something."""
        self._heard_at = self._clock.seconds()

    def wrote(self) -> None:
        """The client has taken something."""
        self._wrote_at = self._clock.seconds()

    def stop(self) -> None:
        """Drop the limits."""
        if self._timer and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _look(self) -> None:
        self.stop()
        now = self._clock.seconds()
        reading = self._heard_at + self._read_ms / 1000 - now
        writing = self._wrote_at + self._write_ms / 1000 - now
        if reading <= 0:
            self._expired(f"nothing read for {self._read_ms} ms")
        elif writing <= 0:
            self._expired(f"nothing written for {self._write_ms} ms")
        else:
            self._timer = self._clock.callLater(min(reading, writing), self._look)
