"""A directory of binlog files, as a server wrote them or as they were copied: which there are, and walks over them.

Walks decode events for no table and tell where transactions end, or which statements ran. Blocks on the disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from canal_ha.decode.decoder import MAGIC
from canal_ha.decode.kernel.kinds import FORMAT_DESCRIPTION
from canal_ha.decode.outputs import Output, Passed
from canal_ha.errors import MalformedEvent, SourceRefused, SourceUnavailable
from canal_ha.model.position import LogPosition, split_journal
from canal_ha.source.connection.flavor import BinaryLog
from canal_ha.source.positions.transactions import Statements, walker

CHUNK_BYTES = 1 << 18
HEADER_BYTES = 19

_ENCRYPTED_MAGIC = b"\xfdbin"
_NAME = re.compile(r"(.+)\.\d{6,}")


def listed(directory: Path) -> tuple[BinaryLog, ...]:
    """The binlog files of a directory, oldest first, none missing between them; () while there is none.

    Their names end in a dot and six digits or more. Raises SourceRefused when they are of two binlogs,
    SourceUnavailable when the directory cannot be read, or one between others is missing: it may be on its way.
    """
    with reading(directory):
        entries = [entry for entry in os.scandir(directory) if _NAME.fullmatch(entry.name) and entry.is_file()]
        found = [(*split_journal(entry.name), BinaryLog(entry.name, entry.stat().st_size)) for entry in entries]
    found.sort(key=lambda item: item[:2])
    bases = {base for base, _, _ in found}
    if len(bases) > 1:
        raise SourceRefused(
            f"{directory}: files of more than one binlog ({', '.join(sorted(bases))}); give each a directory, and a"
            " destination, of its own"
        )
    for (base, number, _), (_, following, log) in pairwise(found):
        if following != number + 1:
            raise SourceUnavailable(f"{directory}: {base} number {number + 1} is missing, though there is {log.name}")
    return tuple(log for _, _, log in found)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Inside, the disk's errors become ours."""
    try:
        yield
    except OSError as error:
        raise SourceUnavailable(f"{path}: {error.strerror}") from error


def head(file: BinaryIO, journal: str) -> bytes:
    """The magic number and the format description; b"" while they are not all there. Leaves the file behind them.

    Raises MalformedEvent when it is no binlog file.
    """
    file.seek(0)
    start = file.read(len(MAGIC) + HEADER_BYTES)
    if not MAGIC.startswith(start[: len(MAGIC)]):
        what = "an encrypted binlog file" if start.startswith(_ENCRYPTED_MAGIC) else "no binlog file"
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
    """When a file was begun: the time of its format description, 0 while that is not there."""
    with reading(directory / journal), (directory / journal).open("rb") as file:
        return int.from_bytes(head(file, journal)[len(MAGIC) : len(MAGIC) + 4], "little") * 1000


def boundary(directory: Path, journal: str, beyond: Callable[[Passed], bool]) -> Passed:
    """The last boundary between transactions before the first one that is `beyond`; the file's last when none is.

    A file ends where it is damaged. Raises SourceUnavailable.
    """
    found = Passed(journal, len(MAGIC), 0)
    for whole in (True, False):
        with suppress(MalformedEvent):
            for output in _walk(directory, journal, found.position, Statements(lambda *statement: None), whole=whole):
                if isinstance(output, Passed):
                    if beyond(output):
                        break
                    found = output
    return found


def statements(
    directory: Path, start: LogPosition, end: LogPosition, told: Callable[[LogPosition, str, str], None]
) -> None:
    """Tell every statement between two positions: position, default schema, text.

    Raises SourceUnavailable, SourceRefused, MalformedEvent.
    """

    def before_end(at: LogPosition, default_schema: str, sql: str) -> None:
        if at.order < end.order:
            told(at, default_schema, sql)

    for log in listed(directory):
        first = LogPosition(log.name, len(MAGIC))
        if log.name == start.journal or start.order < first.order < end.order:
            offset = start.offset if log.name == start.journal else len(MAGIC)
            for output in _walk(directory, log.name, offset, Statements(before_end)):
                if isinstance(output, Passed) and log.name == end.journal and output.position >= end.offset:
                    return


def _walk(directory: Path, journal: str, offset: int, history: Statements, *, whole: bool = True) -> Iterator[Output]:
    """What a decoder says of a file from an event on. whole: in large chunks; else event by event."""
    decoder = walker(journal, offset, history)
    path = directory / journal
    with reading(path), path.open("rb") as file:
        piece = head(file, journal)
        file.seek(max(offset, len(piece)))
        while piece:
            yield from decoder.feed_file(piece)
            piece = file.read(CHUNK_BYTES) if whole else _event(file)


def _event(file: BinaryIO) -> bytes:
    """The next event, as far as it is there."""
    header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return header
    return header + file.read(max(0, _event_bytes(header) - HEADER_BYTES))


def _event_bytes(header: bytes) -> int:
    return int.from_bytes(header[9:13], "little")
