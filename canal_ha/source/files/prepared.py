"""The journals in a directory, to read the prepared part of an XA transaction again. Blocks on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from canal_ha.decode.decoder import Decoder
from canal_ha.decode.outputs import Output
from canal_ha.errors import PositionLost
from canal_ha.source.files import journals
from canal_ha.source.positions.scan import Enough


@dataclass(frozen=True, slots=True)
class FileJournals:
    """Implements Journals."""

    directory: Path

    def names(self) -> Sequence[str]:
        """See Journals."""
        return [log.name for log in journals.listed(self.directory)]

    def read(self, decoder: Decoder, journal: str, offset: int, see: Callable[[Output], None]) -> None:
        """See Journals."""
        if journal not in self.names():
            raise PositionLost(f"{self.directory}: there is no file {journal}")
        with suppress(Enough):
            for output in journals.outputs(self.directory, journal, offset, decoder):
                see(output)


@contextmanager
def file_journals(directory: Path) -> Iterator[FileJournals]:
    """Yield the journals of a directory; each read opens its own file."""
    yield FileJournals(directory)
