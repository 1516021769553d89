"""Positions and tables of a destination over binlog files. Blocks on the disk.

A configured server behind the files (canal.instance.master.address) is asked for table definitions only.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from canal_ha.config.model import InstanceConfig, LocalFiles, WhenLost
from canal_ha.decode.ddl.script import Definitions
from canal_ha.decode.decoder import MAGIC
from canal_ha.decode.history.history import Fetch, History, TableHistory
from canal_ha.decode.outputs import Passed
from canal_ha.errors import MalformedEvent, PositionLost, SourceRefused, SourceUnavailable
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import BinaryLog
from canal_ha.source.files import journals
from canal_ha.source.group import MembersView
from canal_ha.source.history.destination_history import HistoryDump
from canal_ha.source.positions import lost
from canal_ha.source.server.view import View


class LocalView:
    """Positions in a directory of binlog files. Any thread.

    version: of the server that wrote the newest file; "" before the first look at it.
    """

    def __init__(self, config: InstanceConfig, local: LocalFiles) -> None:
        self.version = ""
        self._config = config
        self._directory = local.directory

    def newest(self) -> LogPosition:
        """Return the current end of the last file. Raises SourceUnavailable, SourceRefused."""
        last = self._logs()[-1]
        path = self._directory / last.name
        with journals.reading(path), path.open("rb") as file:
            try:
                said = journals.head(file, last.name)[len(MAGIC) + journals.HEADER_BYTES + 2 :]
            except MalformedEvent as error:
                raise SourceRefused(str(error)) from error
            modified_ms = int(path.stat().st_mtime * 1000)
        self.version = said[:50].split(b"\0")[0].decode("ascii", "replace")
        return self._at(last.name, last.size_bytes, modified_ms)

    def oldest(self) -> LogPosition:
        """Return the beginning of the first file. Raises SourceUnavailable, SourceRefused."""
        return self._at(self._logs()[0].name, len(MAGIC))

    def start(self, kept: LogPosition | None) -> LogPosition:
        """Return where a new client begins: as configured, else at the first file. `kept` is ignored.

        The position has the configured GTID set, if any; the set of other positions in files is unknown.
        Raises SourceUnavailable, SourceRefused, PositionLost.
        """
        source = self._config.master
        if source.timestamp_ms and not source.position:
            at = self._at_time(source.timestamp_ms, source.journal)
        elif source.journal:
            at = self._existing(self._at(source.journal, max(len(MAGIC), source.position)))
        else:
            at = self.oldest()
        return replace(at, gtid=source.gtid) if self._config.decode.gtid_on else at

    def instead(self, cursor: LogPosition, when: WhenLost) -> LogPosition:
        """Return where to continue when the journal of a cursor is gone. Raises SourceUnavailable, SourceRefused."""
        if when is WhenLost.LATEST:
            return self.find(Place(end="latest"))
        start_ms = cursor.timestamp_ms - self._config.fallback_interval_s * 1000
        if when is WhenLost.EARLIEST or start_ms <= 0:
            return self.oldest()
        return self._at_time(start_ms)

    def find(self, place: Place) -> LogPosition:
        """Return the transaction boundary for a place.

        Raises SourceUnavailable, SourceRefused, and PositionLost if the position does not exist.
        """
        if place.end == "earliest":
            return self.oldest()
        if place.gtid:
            raise SourceRefused(f"{self._directory}: cannot find GTIDs in files; give JOURNAL:OFFSET or time:...")
        if place.timestamp_ms:
            return self._at_time(place.timestamp_ms)
        wanted = self.newest() if place.end else self._existing(self._at(place.journal, place.offset))
        return self._boundary(wanted.journal, lambda passed: passed.position > wanted.offset)

    def reach(self, at: LogPosition) -> str:
        """Describe whether the files still have this position, and how far it is from the end."""
        return lost.reach(self._logs(), at)

    def close(self) -> None:
        """Do nothing: no connection or file stays open."""

    def _logs(self) -> tuple[BinaryLog, ...]:
        logs = journals.listed(self._directory)
        if not logs:
            raise SourceUnavailable(f"{self._directory}: no binlog files found (names like mysql-bin.000001)")
        return logs

    def _at(self, journal: str, offset: int, timestamp_ms: int = 0) -> LogPosition:
        source = self._config.master
        return LogPosition(journal, offset, timestamp_ms, address=source.host, port=source.port)

    def _existing(self, at: LogPosition) -> LogPosition:
        logs = self._logs()
        if not any(log.name == at.journal and at.offset <= log.size_bytes for log in logs):
            reach = f"{logs[0].name}:{len(MAGIC)} to {logs[-1].name}:{logs[-1].size_bytes}"
            raise PositionLost(f"{self._directory}: {at} does not exist; the files reach from {reach}")
        return at

    def _boundary(self, journal: str, beyond: Callable[[Passed], bool]) -> LogPosition:
        found = journals.boundary(self._directory, journal, beyond)
        return self._at(journal, found.position, found.timestamp_ms)

    def _at_time(self, timestamp_ms: int, journal: str = "") -> LogPosition:
        """Return a boundary before everything committed at this time or later. journal: search only this file.

        Event times are whole seconds and can be a second out of order when commits are written together.
        """
        target_ms = timestamp_ms - 1000
        if not journal:
            logs = self._logs()
            first_behind = bisect_right(logs, target_ms, key=lambda log: journals.began_ms(self._directory, log.name))
            journal = logs[max(0, first_behind - 1)].name
        self._existing(self._at(journal, len(MAGIC)))
        return self._boundary(journal, lambda passed: passed.timestamp_ms >= target_ms)


class LocalTables:
    """The tables of a destination over binlog files, as of any position. Any thread; calls run one at a time.

    config: of the destination.
    local: the directory, and the file with definitions.
    fetch: returns the text of a table that neither the files nor the definitions create; None if there is none.

    A text from either counts only if it agrees with the events. For a stream that begins later than what was read,
    the statements before its start are read first.
    """

    def __init__(self, config: InstanceConfig, local: LocalFiles, fetch: Fetch) -> None:
        """Read the definitions. Raises SourceRefused if their file is unreadable."""
        self._directory = local.directory
        self._definitions = None if local.schema_file is None else read_definitions(local.schema_file)
        self._ask = fetch
        self._history = History(self._fetch, live_texts=not config.decode.table_history)
        self._turn = threading.Lock()
        self._covered: LogPosition | None = None
        self._readings: weakref.WeakSet[HistoryDump] = weakref.WeakSet()

    def view(self, start: LogPosition) -> TableHistory:
        """Return the tables as of `start`. Raises SourceUnavailable, SourceRefused, MalformedEvent."""
        with self._turn:
            if self._covered is None:
                logs = journals.listed(self._directory)
                self._covered = LogPosition(logs[0].name if logs else start.journal, len(MAGIC))
            for reading in self._readings:
                self._cover_to(reading.decoded)
            if start.order > self._covered.order:
                journals.statements(self._directory, self._covered, start, self._history.view(self._covered).apply)
                self._cover_to(start)
        return self._history.view(start)

    def follow(self, reading: HistoryDump) -> None:
        """Count what this dump decodes as covered. Its view must be of the position where it began."""
        with self._turn:
            self._readings.add(reading)

    def _cover_to(self, at: LogPosition | None) -> None:
        if at is not None and self._covered is not None and at.order > self._covered.order:
            self._covered = at

    def _fetch(self, schema: str, table: str) -> str | None:
        text = None if self._definitions is None else self._definitions.fetch(schema, table)
        return text or self._ask(schema, table)


def view_of(config: InstanceConfig) -> View | LocalView | MembersView:
    """Return the view that finds positions of a destination."""
    if config.local:
        return LocalView(config, config.local)
    return MembersView(config) if config.group else View(config)


def read_definitions(path: Path) -> Definitions:
    """Read the tables of the configured SQL file. Raises SourceRefused."""
    try:
        return Definitions(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SourceRefused(f"canal.instance.parser.schema: {path}: {error.strerror}") from error
    except ValueError as error:  # UnicodeDecodeError is one
        raise SourceRefused(f"canal.instance.parser.schema: {path}: {error}") from error
