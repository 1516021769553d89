"""Calm: whether so little comes from a source, in such small chunks, that the reactor may read its dump. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable

SMALL_BYTES = 16 * 1024  # a chunk below this is decoded before another thread would get to run
QUIET_CHUNKS = 4  # small ones in a row, before the reactor reads the dump
LONG_S = 0.003  # of processor time for a small chunk: tables with hundreds of columns, long GTID sets
LOOKS = 16  # chunks whose processor time is measured after one that took as long by the clock
NOT_LENT_S = 60.0  # after a chunk that took LONG_S
FAST_BYTES = 4 << 20  # a second, above which large chunks on a thread take less processor time
RATE_S, RATE_BYTES = 0.1, 1 << 16  # the rate is known after so long or so much


class Calm:
    """Watches the chunks of one dump, each from its arrival until it is decoded.

    To ask for the processor time of a thread takes several microseconds at the tip of the binlog. So it is asked only
    behind a chunk that took long by the clock, which takes no less than the processor did.
    """

    def __init__(self, processor_s: Callable[[], float] = time.thread_time) -> None:
        """processor_s: how much processor time the thread has used, seconds."""
        self._processor_s = processor_s
        self._began_at = 0.0  # to decode the chunk
        self._began_s = 0.0  # likewise, by `processor_s`
        self._looks = 0  # at the processor time of the next chunks
        self._quiet = 0  # small chunks in a row that held nothing that may block
        self._not_before = 0.0
        self._rate_since = 0.0
        self._rate_bytes = 0  # since then
        self._fast = False

    def began(self, count: int, now: float) -> None:
        """A chunk has come. count: its bytes. now: seconds, monotonic."""
        self._quiet = self._quiet + 1 if count < SMALL_BYTES else 0
        self._rate_bytes += count
        passed_s = now - self._rate_since
        if passed_s >= RATE_S or self._rate_bytes >= RATE_BYTES:
            self._fast = self._rate_bytes > FAST_BYTES * passed_s
            self._rate_since, self._rate_bytes = now, 0
        self._began_at = now
        if self._looks:
            self._began_s = self._processor_s()

    def ended(self, count: int, now: float) -> None:
        """The chunk is decoded. count, now: as for `began`."""
        learned = self._quiet == 0  # a table or a statement, which takes long once
        looked, self._looks = self._looks > 0, max(0, self._looks - 1)
        if count < SMALL_BYTES and not learned and now - self._began_at > LONG_S:
            if looked and self._processor_s() - self._began_s > LONG_S:
                self._not_before = now + NOT_LENT_S
            self._looks = LOOKS

    def interrupted(self) -> None:
        """Something that may block has come, or the dump begins anew."""
        self._quiet = 0

    def rests(self) -> None:
        """Nothing is known that comes soon, so the reactor may begin at once."""
        self._quiet = QUIET_CHUNKS

    def lasts(self, now: float) -> bool:
        """Whether nothing speaks against that the reactor goes on. now: when the last chunk was decoded."""
        return not self._fast and now >= self._not_before

    def reached(self, now: float) -> bool:
        """Whether the reactor may begin. now: as for `lasts`."""
        return self._quiet >= QUIET_CHUNKS and self.lasts(now)
