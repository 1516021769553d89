"""The binlog files of a directory, whether a server writes them or they are copies: their list and their contents.

Functions here decode events for no table; they find transaction boundaries or statements. Blocks on the disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from canal_ha.decode.decoder import MAGIC, Decoder
from canal_ha.decode.kernel.kinds import FORMAT_DESCRIPTION
from canal_ha.decode.outputs import Output, Passed
from canal_ha.errors import MalformedEvent, SourceRefused, SourceUnavailable
from canal_ha.model.position import LogPosition, split_journal
from canal_ha.source.connection.flavor import BinaryLog
from canal_ha.source.positions.transactions import Statements, boundary_decoder

CHUNK_BYTES = 1 << 18
HEADER_BYTES = 19

_ENCRYPTED_MAGIC = b"\xfdbin"
_NAME = re.compile(r"(.+)\.\d{6,}")


def listed(directory: Path) -> tuple[BinaryLog, ...]:
    """Return the binlog files of a directory, oldest first and without gaps; () if there are none.

    Their names end in a dot and six or more digits. Raises SourceRefused if they belong to two binlogs, and
    SourceUnavailable if the directory is unreadable or a file in between is missing: it may still arrive.
    """
    with reading(directory):
        entries = [entry for entry in os.scandir(directory) if _NAME.fullmatch(entry.name) and entry.is_file()]
        found = [(*split_journal(entry.name), BinaryLog(entry.name, entry.stat().st_size)) for entry in entries]
    found.sort(key=lambda item: item[:2])
    bases = {base for base, _, _ in found}
    if len(bases) > 1:
        raise SourceRefused(
            f"{directory}: files of more than one binlog ({', '.join(sorted(bases))}); give each binlog a directory"
            " and a destination of its own"
        )
    for (base, number, _), (_, following, log) in pairwise(found):
        if following != number + 1:
            raise SourceUnavailable(f"{directory}: {base} number {number + 1} is missing, but {log.name} exists")
    return tuple(log for _, _, log in found)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the disk's errors into SourceUnavailable."""
    try:
        yield
    except OSError as error:
        raise SourceUnavailable(f"{path}: {error.strerror}") from error


def head(file: BinaryIO, journal: str) -> bytes:
    """Return the magic number and the format description; b"" while they are incomplete. Leaves the file behind them.

    Raises MalformedEvent if this is not a binlog file.
    """
    file.seek(0)
    start = file.read(len(MAGIC) + HEADER_BYTES)
    if not MAGIC.startswith(start[: len(MAGIC)]):
        what = "an encrypted binlog file" if start.startswith(_ENCRYPTED_MAGIC) else "not a binlog file"
        raise MalformedEvent(journal, 0, f"this is {what}")
    if len(start) < len(MAGIC) + HEADER_BYTES:
        return b""
    kind = start[len(MAGIC) + 4]
    if kind != FORMAT_DESCRIPTION:
        raise MalformedEvent(journal, len(MAGIC), f"the file begins with an event of type {kind}, not its format")
    size = _event_bytes(start[len(MAGIC) :])
    rest = file.read(max(0, size - HEADER_BYTES))
    return start + rest if len(start) + len(rest) >= len(MAGIC) + size else b""


def began_ms(directory: Path, journal: str) -> int:
    """Return when a file was created, ms: the time of its format description; 0 while it has none."""
    with reading(directory / journal), (directory / journal).open("rb") as file:
        return int.from_bytes(head(file, journal)[len(MAGIC) : len(MAGIC) + 4], "little") * 1000


def boundary(directory: Path, journal: str, beyond: Callable[[Passed], bool]) -> Passed:
    """Return the last transaction boundary before the first one that is `beyond`; the file's last one if none is.

    directory, journal: the file.
    beyond: whether a boundary lies behind the wanted one.
    A damaged file ends at the damage. Raises SourceUnavailable.
    """
    found = Passed(journal, len(MAGIC), 0)
    for whole in (True, False):
        with suppress(MalformedEvent):
            for output in _outputs(
                directory, journal, found.position, Statements(lambda *statement: None), whole=whole
            ):
                if isinstance(output, Passed):
                    if beyond(output):
                        break
                    found = output
    return found


def statements(
    directory: Path, start: LogPosition, end: LogPosition, apply: Callable[[LogPosition, str, str], object]
) -> None:
    """Pass every statement between two positions to `apply`: position, default schema, text.

    directory: the binlog files.
    start, end: the range; statements at `end` are excluded.
    apply: takes each statement.
    Raises SourceUnavailable, SourceRefused, MalformedEvent.
    """

    def before_end(at: LogPosition, default_schema: str, sql: str) -> None:
        if at.order < end.order:
            apply(at, default_schema, sql)

    for log in listed(directory):
        first = LogPosition(log.name, len(MAGIC))
        if log.name == start.journal or start.order < first.order < end.order:
            offset = start.offset if log.name == start.journal else len(MAGIC)
            for output in _outputs(directory, log.name, offset, Statements(before_end)):
                if isinstance(output, Passed) and log.name == end.journal and output.position >= end.offset:
                    return


def _outputs(
    directory: Path, journal: str, offset: int, history: Statements, *, whole: bool = True
) -> Iterator[Output]:
    return outputs(directory, journal, offset, boundary_decoder(journal, offset, history), whole=whole)


def outputs(directory: Path, journal: str, offset: int, decoder: Decoder, *, whole: bool = True) -> Iterator[Output]:
    """Decode a file from an event on and yield the outputs. whole: read large chunks; else event by event."""
    path = directory / journal
    with reading(path), path.open("rb") as file:
        piece = head(file, journal)
        file.seek(max(offset, len(piece)))
        while piece:
            yield from decoder.feed_file(piece)
            piece = file.read(CHUNK_BYTES) if whole else _event(file)


def _event(file: BinaryIO) -> bytes:
    """Read the next event, as far as it is complete."""
    header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return header
    return header + file.read(max(0, _event_bytes(header) - HEADER_BYTES))


def _event_bytes(header: bytes) -> int:
    return int.from_bytes(header[9:13], "little")
