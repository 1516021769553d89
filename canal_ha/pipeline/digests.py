"""KeptDigests: which rows of a snapshot a target has, in a file beside the pipeline.

Rows of a snapshot have no position of their own, so Intake recognises them by digests when the server delivers them
again. A mirror needs none of this; a log of changes would have such rows twice. Without the file, as on another
machine, it has them twice after a crash within a snapshot, at most those that were not acknowledged.

A line of the file belongs to a commit and is written before it. The file counts if its newest commit is the target's.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from canal_ha.errors import PipelineFailed
from canal_ha.pipeline.paths import segment
from canal_ha.pipeline.progress import Progress
from canal_ha.private_files import make_directory, opener

DIGESTS_KEPT = 10_000  # far more entries than are in flight
_LARGEST = 4 << 20  # bytes of the file before it is written anew


class KeptDigests:
    """The digests of one destination."""

    def __init__(self, state: Path, destination: str) -> None:
        """Create it; nothing is opened. state: directory of what the pipeline keeps."""
        self._file = state / f"{segment(destination)}.digests"
        self._recent: deque[tuple[str, int]] = deque()  # lines, with the number of digests of each
        self._count = 0  # of all of them

    def of(self, progress: Progress) -> list[bytes]:
        """Return the digests of rows that the target has at this progress, oldest first; forget all others."""
        try:
            text = self._file.read_text()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(error) from error
        done = [(line, body) for line in text.splitlines() if (body := _parsed(line)) and body["seq"] <= progress.seq]
        if not done or _place(progress) != {name: value for name, value in done[-1][1].items() if name != "digests"}:
            done = []
        self._recent.clear()
        self._count = 0
        for line, body in done:
            self._add(line, len(body["digests"]))
        self._write()
        return [bytes.fromhex(each) for _, body in done for each in body["digests"]][-DIGESTS_KEPT:]

    def keep(self, progress: Progress, digests: Sequence[bytes]) -> None:
        """Note the digests of the commit that comes next. progress: its own."""
        if not digests:
            return
        body = {**_place(progress), "digests": [each.hex() for each in digests]}
        line = json.dumps(body, separators=(",", ":"))
        self._add(line, len(digests))
        try:
            make_directory(self._file.parent)
            with open(self._file, "a", opener=opener) as file:
                file.write(f"{line}\n")
                large = file.tell() > _LARGEST
        except OSError as error:
            raise self._unusable(error) from error
        if large:
            self._write()

    def _add(self, line: str, count: int) -> None:
        """Add a line, and forget the oldest ones that are not needed for the newest DIGESTS_KEPT digests."""
        self._recent.append((line, count))
        self._count += count
        while self._count - self._recent[0][1] >= DIGESTS_KEPT:
            self._count -= self._recent.popleft()[1]

    def _write(self) -> None:
        """Write the file anew."""
        renewed = self._file.with_suffix(".new")
        try:
            with open(renewed, "w", opener=opener) as file:
                file.writelines(f"{line}\n" for line, _ in self._recent)
            renewed.replace(self._file)
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> PipelineFailed:
        return PipelineFailed(f"canal: {self._file} cannot be used: {error.strerror}; it is in the pipeline's `state`")


def _place(progress: Progress) -> dict[str, Any]:
    """Return what a commit is recognised by. The run can get another name after it."""
    return {"seq": progress.seq, "last": str(progress.last), "sub": progress.last.sub_index}


def _parsed(line: str) -> dict[str, Any] | None:
    """Return a line; None for one whose write was interrupted."""
    try:
        body: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return body
