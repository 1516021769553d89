"""The source thread of one stream over binlog files: read, decode, deliver, wait for more (local-instance).

`LocalDump` starts one thread, as `dump.Dump` does for a server. A file ends with its rotate event. A file that lacks
one after a crash ends once the next file exists and nothing was added for a while. At the last file the thread waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import BinaryIO, Protocol, TypeVar

from canal_ha.config.model import InstanceConfig, LocalFiles
from canal_ha.decode.decoder import MAGIC
from canal_ha.decode.outputs import Output, Passed, Rotated, SourceFormat
from canal_ha.errors import CanalError, MalformedEvent, PositionLost, RingClosed, SourceUnavailable
from canal_ha.model.position import LogPosition, split_journal
from canal_ha.model.segment import Segment, Source
from canal_ha.source.connection.backoff import Backoff
from canal_ha.source.connection.flavor import BinaryLog
from canal_ha.source.files import journals
from canal_ha.source.positions.resume import Resume
from canal_ha.source.server.dump import DumpFailed, DumpStarted

POLL_S = 0.2
QUIET_S = 2.0  # how long a file without a rotate event must not grow before it counts as complete

T = TypeVar("T")


class FileDecoder(Protocol):
    """The decoder of one file: takes its bytes, yields outputs in order."""

    def feed_file(self, data: bytes, /) -> Iterator[Output]: ...

    def finish(self) -> Iterator[Output]:
        """End the file. Raises MalformedEvent inside an event or a transaction."""

    @property
    def gtid_set(self) -> str:
        """The GTID set executed so far; "" outside GTID mode."""


class _FileDumpStopped(Exception):
    """stop() was called."""


class LocalDump:
    """Reads one stream from `start` (a transaction boundary; inclusive unless consumed) until stopped.

    Arguments and attributes are those of `Dump`, but for two:
    make_decoder: makes a fresh decoder for each file.
    idle: the dump has read everything there is.
    """

    def __init__(
        self,
        config: InstanceConfig,
        local: LocalFiles,
        *,
        name: str,
        start: LogPosition,
        make_decoder: Callable[[Source, LogPosition], FileDecoder],
        accept: Callable[[Segment], None],
        report: Callable[[DumpStarted | DumpFailed], None],
        rng: Random | None = None,
    ) -> None:
        self.decoded: LogPosition | None = start
        self.received_bytes = 0
        self.last_event_ms = 0
        self.idle = False
        self.idle_at = 0.0
        self.shared = self.lent = False
        self.tap = ""
        self._config = config
        self._directory = local.directory
        self._make_decoder = make_decoder
        self._accept = accept
        self._report = report
        self._resume = Resume(start)
        self._start = start
        self._backoff = Backoff((rng or Random()).random)
        self._stopping = threading.Event()
        self._rotated = False
        self._connected = False
        self._thread = threading.Thread(target=self._run, name=f"files-{config.destination}-{name}", daemon=True)

    # ---- any thread

    def start(self) -> None:
        """Start the thread and return at once."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end and return at once."""
        self._stopping.set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread to end; return False if the time-out expires first."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ---- the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            began_at = self._resume.at
            try:
                self._read()
            except (_FileDumpStopped, RingClosed):
                return
            except CanalError as error:
                failure = error
            except Exception as error:
                failure = CanalError(f"{self._config.destination}: reading failed at {self._resume.at}: {error!r}")
                failure.__cause__ = error
            if self._resume.at is not began_at:
                self._backoff.reset()
            retry_in_s = self._backoff.delay_s() if failure.retryable else None
            self._report(DumpFailed(failure, retry_in_s))
            if retry_in_s is None:
                return
            self._stopping.wait(retry_in_s)

    def _read(self) -> None:
        """Read file after file, until an exception ends it."""
        self._connected = False
        at = self._resume.begin()
        self._exists(at)
        while True:
            try:
                self._read_file(at)
            except MalformedEvent as error:
                if self._rotated:  # the decoder has already reached the next journal
                    raise MalformedEvent(at.journal, error.offset, f"after the rotate event: {error.reason}") from error
                raise self._stepped_back(error) from error
            following = self._awaited(partial(self._following, at.journal))
            self._resume.passed(following.name, len(MAGIC))
            self.decoded = at = self._resume.at

    def _read_file(self, at: LogPosition) -> None:
        """Read one file from an offset on; return when it is complete."""
        decoder = self._make_decoder(Source(self._config.master.host, self._config.master.port), at)
        path = self._directory / at.journal
        self._rotated = False
        with journals.reading(path), path.open("rb", buffering=0) as file:
            head = self._awaited(lambda: journals.head(file, at.journal) or None)
            self._take(decoder, decoder.feed_file(head))
            file.seek(max(at.offset, len(head)))
            for chunk in self._chunks(file, at.journal):
                self.received_bytes += len(chunk)
                self._take(decoder, decoder.feed_file(chunk))
        self._take(decoder, decoder.finish())

    def _chunks(self, file: BinaryIO, journal: str) -> Iterator[bytes]:
        """Yield present and future bytes, until the file is complete."""
        quiet_s = 0.0
        while True:
            chunk = file.read(journals.CHUNK_BYTES)
            if chunk:
                quiet_s = 0.0
                yield chunk
                continue
            if os.fstat(file.fileno()).st_size < file.tell():
                raise MalformedEvent(journal, file.tell(), "the file is shorter than the part already read")
            if self._rotated or quiet_s >= QUIET_S:
                return
            followed = self._following(journal) is not None
            self._wait(idle=not followed)
            quiet_s = quiet_s + POLL_S if followed else 0.0

    def _take(self, decoder: FileDecoder, outputs: Iterator[Output]) -> None:
        for output in outputs:
            match output:
                case Segment():
                    self._deliver(output)
                case Passed() if not self._rotated:
                    self.idle = False
                    self.last_event_ms = output.timestamp_ms or self.last_event_ms
                    self._resume.passed(output.journal, output.position, output.timestamp_ms, decoder.gtid_set)
                    self.decoded = self._resume.at
                case Rotated():  # the file may have been renamed since, so its name is not used
                    self._rotated = True
                case SourceFormat():
                    if not self._connected:
                        self._report(DumpStarted(output.server_version, "", 0))
                    self._connected = True
        if self._stopping.is_set():
            raise _FileDumpStopped

    def _deliver(self, segment: Segment) -> None:
        self.idle = False
        fresh = self._resume.new(segment)
        if fresh is None:
            return
        self._accept(fresh)
        self._resume.delivered(fresh)
        self.last_event_ms = fresh.timestamps[-1]

    # ---- waiting

    def _awaited(self, look: Callable[[], T | None]) -> T:
        while True:
            found = look()
            if found is not None:
                return found
            self._wait(idle=True)

    def _wait(self, *, idle: bool) -> None:
        self.idle = idle
        if idle:
            self.idle_at = time.monotonic()
        if self._stopping.wait(POLL_S):
            raise _FileDumpStopped

    def _following(self, journal: str) -> BinaryLog | None:
        """Return the next file, once it exists."""
        logs = journals.listed(self._directory)
        number = split_journal(journal)[1] + 1
        return next((log for log in logs if split_journal(log.name)[1] == number), None)

    # ---- where to begin

    def _exists(self, at: LogPosition) -> None:
        """Raise PositionLost if the position cannot exist any more, SourceUnavailable if there are no files."""
        logs = journals.listed(self._directory)
        if not logs:
            raise SourceUnavailable(f"{self._directory}: no binlog files found (names like mysql-bin.000001)")
        size = next((log.size_bytes for log in logs if log.name == at.journal), None)
        if size is None or at.offset > size:
            raise PositionLost(
                f"{self._directory}: {at} does not exist; the files reach from {logs[0].name}:{len(MAGIC)} to"
                f" {logs[-1].name}:{logs[-1].size_bytes}; {self._config.destination} cannot continue: restore the"
                " file, or set the cursor (canal-ha cursor set), or choose canal.instance.position.lost"
            )

    def _stepped_back(self, error: MalformedEvent) -> CanalError:
        """Move a start inside a transaction to its begin, because no table map precedes its rows."""
        start = self._resume.at
        if start is not self._start or self._resume.delivered_any:
            return error
        found = journals.boundary(self._directory, start.journal, lambda passed: passed.position > start.offset)
        if found.position >= start.offset:
            return error
        at = LogPosition(
            start.journal, found.position, found.timestamp_ms, gtid=start.gtid, address=start.address, port=start.port
        )
        self._resume = Resume(at)
        self.decoded = at
        return SourceUnavailable(f"{start} lies inside a transaction ({error}); reading continues from {at}")
