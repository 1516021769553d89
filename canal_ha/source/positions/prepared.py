"""Reads the prepared part of an XA transaction again from the binlog, when it commits and nobody has kept it. Blocks.

A stream that begins between XA PREPARE and XA COMMIT searches for the part: in the journal of the commit, then in the
one before it, and so on. Each journal is searched once; the search notes every transaction that it leaves prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.outputs import Output, Passed, Rotated, SourceSaid
from canal_ha.decode.prepared import XaCommit, Xid
from canal_ha.errors import PositionLost, PreparedLost, SourceUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import binary_logs, examine
from canal_ha.source.connection.session import Interruptible, SourceSession
from canal_ha.source.positions.resume import FIRST_OFFSET, dump_offset
from canal_ha.source.positions.scan import Enough, Scanner
from canal_ha.source.positions.transactions import boundary_decoder

PIECE_BYTES = 4 << 20  # of a part, in memory at a time


class Journals(Protocol):
    """The journals of one source."""

    def names(self) -> Sequence[str]:
        """Return the journals that exist, oldest first."""

    def read(self, decoder: Decoder, journal: str, offset: int, see: Callable[[Output], None]) -> None:
        """Decode a journal from an event on until `see`, which gets the outputs, or `decoder` raises Enough.

        Raises PositionLost if the journal does not exist.
        """


class PreparedReader:
    """Reads the parts that one stream needs. Its thread is the stream's."""

    def __init__(self, where: str, journals: Callable[[], AbstractContextManager[Journals]]) -> None:
        """Make a reader that has searched nothing yet.

        where: the source, for errors.
        journals: opens the source.
        """
        self._where = where
        self._journals = journals
        self._searched: dict[str, dict[Xid, LogPosition]] = {}  # by journal: what it leaves prepared, and since where

    def read_again(self, commit: XaCommit, begin: LogPosition | None) -> Iterator[bytes]:
        """Yield the events of a part, whole events in pieces.

        begin: the first of them, if known.
        Raises PreparedLost if the binlog does not have them, SourceUnavailable, SourceRefused.
        """
        done = False
        with self._journals() as journals:
            try:
                at = begin or self._found(journals, commit)
                while not done:
                    piece = _Piece(commit.xid, at.offset)
                    offset = dump_offset(at.offset)
                    decoder = boundary_decoder(at.journal, offset, prepared=piece, in_prepared_part=offset == at.offset)
                    journals.read(decoder, at.journal, offset, _Until(at.journal).see)
                    if not piece.done and piece.behind is None:
                        raise SourceUnavailable(
                            f"{self._where}: the part of {commit.xid} at {at} was not read to its end"
                        )
                    yield b"".join(piece.events)
                    done = piece.done
                    at = replace(at, offset=piece.behind or at.offset)
            except PositionLost as error:
                names = journals.names()
                if begin is None or begin.journal in names:
                    raise SourceUnavailable(str(error)) from error
                raise self._lost(commit, names) from error
            finally:
                if not done:  # the next attempt has to find the part again
                    self._searched.clear()

    def _found(self, journals: Journals, commit: XaCommit) -> LogPosition:
        """Return the first event of the part that was prepared last before this commit."""
        names = list(journals.names())
        if commit.at.journal in names:
            for journal in reversed(names[: names.index(commit.at.journal) + 1]):
                left = self._searched.get(journal)
                if left is None:
                    until = commit.at.offset if journal == commit.at.journal else None
                    places = _Places(until)
                    decoder = boundary_decoder(journal, FIRST_OFFSET, prepared=places)
                    journals.read(decoder, journal, FIRST_OFFSET, _Until(journal, until).see)
                    left = self._searched[journal] = places.left
                if commit.xid in left:
                    return left.pop(commit.xid)
        raise self._lost(commit, names)

    def _lost(self, commit: XaCommit, names: Sequence[str]) -> PreparedLost:
        behind = f"{commit.at.journal}:{commit.behind}"
        oldest = names[0] if names else "none"
        return PreparedLost(
            f"{self._where}: the XA transaction {commit.xid} commits at {commit.at}, but the binlog has no rows for it."
            " If the server crashed in an earlier XA COMMIT of the transaction, and somebody repeated it, the rows came"
            " with the earlier one. Otherwise it was prepared in a journal that is purged (the oldest is"
            f" {oldest}). Copy its rows from the server to the targets if they lack them, then set the cursor to"
            f" {behind} (canal-ha cursor set)"
        )


class _Places:
    """The prepared parts of a journal that are not decided in it. left: the first event of each."""

    def __init__(self, until: int | None) -> None:
        """until: the offset where to end; None: the journal's end."""
        self.left: dict[Xid, LogPosition] = {}
        self._until = until
        self._at: LogPosition | None = None

    def begin(self, at: LogPosition) -> None:
        self._at = at

    def add(self, event: bytes, offset: int) -> None:
        """Keep nothing."""

    def prepared(self, xid: Xid) -> None:
        if self._at is not None and self._counts(self._at):
            self.left[xid] = self._at

    def rolled_back(self, xid: Xid, at: LogPosition) -> None:
        if self._counts(at):
            self.left.pop(xid, None)

    def committed(self, commit: XaCommit) -> Iterator[bytes]:
        self.rolled_back(commit.xid, commit.at)
        return iter(())

    def _counts(self, at: LogPosition) -> bool:
        return self._until is None or at.offset < self._until


class _Piece:
    """Takes events of one part, from an offset on, until there are enough.

    behind: the offset of the first event that was left out; None if there is none.
    done: XA PREPARE was reached.
    """

    def __init__(self, xid: Xid, start: int) -> None:
        self.events: list[bytes] = []
        self.behind: int | None = None
        self.done = False
        self._xid = xid
        self._start = start
        self._size_bytes = 0

    def begin(self, at: LogPosition) -> None:
        """Do nothing: the offset of an event decides."""

    def add(self, event: bytes, offset: int) -> None:
        if offset < self._start:
            return
        if self._size_bytes >= PIECE_BYTES:
            self.behind = offset
            raise Enough
        self.events.append(event)
        self._size_bytes += len(event)

    def prepared(self, xid: Xid) -> None:
        if self.events:
            self.done = xid == self._xid
            raise Enough

    def rolled_back(self, xid: Xid, at: LogPosition) -> None:
        """Do nothing."""

    def committed(self, commit: XaCommit) -> Iterator[bytes]:
        return iter(())


@dataclass(frozen=True, slots=True)
class _Until:
    """Ends a read at the end of its journal, or at a boundary behind an offset."""

    journal: str
    offset: int | None = None

    def see(self, output: Output) -> None:
        """Raise Enough if this output is behind the end."""
        match output:
            case Rotated() if output.journal != self.journal:
                raise Enough
            case Passed() if self.offset is not None and output.position >= self.offset:
                raise Enough
            case SourceSaid():
                raise Enough(output.errno, output.text)


@dataclass(frozen=True, slots=True)
class ServerJournals:
    """The journals of a server. Implements Journals."""

    scanner: Scanner

    def names(self) -> Sequence[str]:
        """See Journals."""
        return [log.name for log in binary_logs(self.scanner.session)]

    def read(self, decoder: Decoder, journal: str, offset: int, see: Callable[[Output], None]) -> None:
        """See Journals."""

        def eat(data: memoryview) -> list[bytes]:
            for output in decoder.feed(data):
                see(output)
            return []

        self.scanner.read(eat, journal=journal, offset=offset)


@contextmanager
def server_journals(
    config: InstanceConfig, source: SourceConfig, opening: Callable[[Interruptible], None]
) -> Iterator[ServerJournals]:
    """Connect to a server for its journals.

    config: of the destination.
    source: the server.
    opening: as in `reader.run`.
    """
    session = SourceSession(config, source, opening=opening)
    try:
        yield ServerJournals(Scanner(session, examine(session), config, source, opening))
    finally:
        session.close()
