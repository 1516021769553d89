"""The progress of a target that cannot store it itself: one file for each destination in the pipeline's directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canal_ha.errors import SinkRefused, TargetUnavailable
from canal_ha.pipeline.paths import segment
from canal_ha.pipeline.progress import Progress
from canal_ha.private_files import replace


@dataclass(frozen=True, slots=True)
class StoredProgress:
    """What a file has. progress: of the last commit; rows: how many rows all commits of its run have."""

    progress: Progress
    rows: int


class ProgressFiles:
    """The files of one target. directory: created with the first file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, destination: str) -> StoredProgress | None:
        """Return what is stored; None without a file. Raises SinkRefused."""
        file = self._file(destination)
        try:
            body: Any = json.loads(file.read_text(encoding="utf-8"))
            return StoredProgress(Progress.from_json(json.dumps(body["progress"])), int(body["rows"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SinkRefused(
                f"{file} cannot be read: {error}; restore the file, or remove it to start without progress"
            ) from error

    def write(self, destination: str, delivered: StoredProgress) -> None:
        """Store it durably. Raises TargetUnavailable."""
        file = self._file(destination)
        text = f'{{"rows":{delivered.rows},"progress":{delivered.progress.to_json()}}}'
        try:
            replace(file, text.encode())
        except OSError as error:
            raise TargetUnavailable(f"{file} cannot be written: {error.strerror or error}") from error

    def _file(self, destination: str) -> Path:
        return self._directory / f"{segment(destination)}.json"
