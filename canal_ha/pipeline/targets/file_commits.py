"""FileCommits: the progress of each destination, in files that no other process can replace.

Each commit is a file of its own, `progress-<number>-<token>.json`, with a token that no other process uses. Who has
written one looks which others are there: if one has the same number or a higher one, another process has gone on, and
the file is taken back. So of two processes that write the same number, the second sees the first, or both see each
other; never do both commit. The file that a commit follows must still be there, alone with its number: else it was
taken back, or will be. This needs no conditional writes, only a file system or an object store that lists each file
from its writing on, as local ones, S3, Google Cloud Storage and Azure do.

Earlier versions kept one file, `progress.json`; it counts as number 0.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from time import sleep
from typing import Any

from canal_ha.errors import SinkRefused, TargetUnavailable
from canal_ha.pipeline.paths import OWN, segment
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.targets.file_area import FileArea

_FORMER = "progress.json"
_ATTEMPTS, _WAIT_S = 5, 0.3  # to read the newest commit while others are stored
_NAME = re.compile(r"progress-([0-9]{12})-[0-9a-f]+\.json")


@dataclass(frozen=True, slots=True)
class FileCommit:
    """What a progress file has.

    name: of the file; "" without one.
    number: of the commit.
    progress: of the target; None before the first commit.
    files: those of the commit: where they are written, and where they belong.
    """

    name: str = ""
    number: int = 0
    progress: Progress | None = None
    files: tuple[tuple[str, str], ...] = ()


class FileCommits:
    """See the module. Methods raise OSError.

    area: of the target.
    where: the target, for messages.
    """

    def __init__(self, area: FileArea, where: str) -> None:
        self._area = area
        self._where = where

    def directory(self, destination: str) -> str:
        """Return where the files of a destination are."""
        return f"{OWN}/{segment(destination)}"

    def newest(self, destination: str) -> FileCommit:
        """Return the newest commit. Raises SinkRefused, and TargetUnavailable while others are stored all the time."""
        directory, names = self.directory(destination), [""]
        for _ in range(_ATTEMPTS):
            if len(names) > 1:
                sleep(_WAIT_S)
            numbers = self._numbers(directory)
            if not numbers:
                return FileCommit()
            highest = max(numbers.values())
            names = sorted(name for name, number in numbers.items() if number == highest)
            if len(names) > 1:
                continue  # one of them, or both, will be taken back
            try:
                return self._read(f"{directory}/{names[0]}", highest)
            except FileNotFoundError:
                continue  # a later one is there
        if len(names) > 1:
            raise SinkRefused(
                f"parquet: {self._where}: destination {destination}: two processes of this pipeline have stored a"
                f" commit at once: {' and '.join(names)} in {directory}. End one of them and start again. If both"
                " files stay, remove the newer one"
            )
        raise TargetUnavailable(f"parquet: {self._where}: another process of this pipeline commits all the time")

    def store(
        self,
        destination: str,
        before: FileCommit,
        token: str,
        progress: Progress | None,
        files: tuple[tuple[str, str], ...] = (),
    ) -> FileCommit:
        """Store a commit and return it.

        destination: its name.
        before: the newest commit, as this process knows it.
        token: random, for this commit alone.
        progress: of the target with the commit.
        files: of the commit.
        Raises SinkRefused if another process has gone on.
        """
        directory, number = self.directory(destination), before.number + 1
        own = f"progress-{number:012d}-{token}.json"
        body = {"progress": progress.to_json() if progress else None, "files": files}
        self._area.write(f"{directory}/{own}", json.dumps(body).encode())
        others = {name: other for name, other in self._numbers(directory).items() if name != own}
        followed = [before.name.rpartition("/")[2]] if before.name else []
        if [name for name, other in others.items() if other >= before.number] != followed:
            self._area.delete(f"{directory}/{own}")
            raise SinkRefused(
                f"parquet: {self._where}: destination {destination}: another process of this pipeline has gone on."
                " Nothing was stored. End one of the two, or start again"
            )
        return FileCommit(f"{directory}/{own}", number, progress, files)

    def remove_older(self, destination: str, than: FileCommit) -> None:
        """Remove a commit, and those before it: a later one is stored."""
        directory = self.directory(destination)
        for name, number in self._numbers(directory).items():
            if number <= than.number:
                self._area.delete(f"{directory}/{name}")

    def _numbers(self, directory: str) -> dict[str, int]:
        """Return the numbers of the commits by the names of their files."""
        names = self._area.names(directory)
        found = {name: int(match[1]) for name in names if (match := _NAME.fullmatch(name))}
        return found | {name: 0 for name in names if name == _FORMER}

    def _read(self, name: str, number: int) -> FileCommit:
        text = self._area.read(name)
        try:
            body: Any = json.loads(text)
            progress = Progress.from_json(body["progress"]) if body["progress"] is not None else None
            return FileCommit(name, number, progress, tuple((pending, place) for pending, place in body["files"]))
        except (ValueError, KeyError, TypeError) as error:
            raise SinkRefused(f"parquet: {self._where}/{name} is not the progress of a pipeline: {error}") from error
