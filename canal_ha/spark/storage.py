"""Where a spool's files are: a local directory, or any file system of pyarrow (S3, GCS, HDFS).

Durable means fsync of file and directory on local file systems, and a successful close on the others, whose objects
appear whole or not at all. Raises SpoolUnusable, except for a full disk, which is NoRoom: waiting helps there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import pyarrow.fs as arrow_fs

from canal_ha.errors import SpoolUnusable

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_HIDDEN = "."  # files under way


class NoRoom(SpoolUnusable):
    """The disk or the quota is full; nothing was written."""

    retryable = True


class Storage(Protocol):
    """One directory of files that are written once, as a whole."""

    uri: str

    def write(self, name: str, data: bytes) -> None:
        """Make a file durable under this name, replacing one that is there: the old or the new content, never less."""

    def read(self, name: str) -> bytes:
        """The whole file. Raises FileNotFoundError."""

    def names(self) -> list[str]:
        """What is there now; nothing when the directory does not exist."""

    def unfinished(self) -> dict[str, str]:
        """Files that are being written, or were when their writer died: name -> what it was to become."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; those that are gone already do not matter."""


def open_storage(root: str, *parts: str) -> Storage:
    """root: a path, or a URI that pyarrow understands. parts: directories below it."""
    scheme = urlsplit(root).scheme if "://" in root else ""
    if scheme in ("", "file"):
        path = urlsplit(root).path if scheme else root
        return LocalStorage(Path(path, *parts).absolute())
    try:
        filesystem, base = arrow_fs.FileSystem.from_uri(root)
    except (OSError, ValueError) as error:
        raise SpoolUnusable(f"spoolDir = {root!r} cannot be opened: {error}") from error
    return ArrowStorage(filesystem, "/".join((base.rstrip("/"), *parts)), "/".join((root.rstrip("/"), *parts)))


class LocalStorage:
    """A local directory, made when something is first written."""

    def __init__(self, path: Path) -> None:
        self.uri = path.as_uri()
        self._path = path

    def write(self, name: str, data: bytes) -> None:
        """fsync the file, rename it, fsync the directory."""
        under_way = self._path / f"{_HIDDEN}{name}.{os.getpid()}"
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            try:
                with under_way.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                under_way.rename(self._path / name)
            except BaseException:
                under_way.unlink(missing_ok=True)
                raise
            directory = os.open(self._path, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            kind = NoRoom if error.errno in _NO_ROOM else SpoolUnusable
            raise kind(f"the spool cannot write {self._path / name}: {error.strerror}") from error

    def read(self, name: str) -> bytes:
        """The whole file."""
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SpoolUnusable(f"the spool cannot read {self._path / name}: {error.strerror}") from error

    def names(self) -> list[str]:
        """What is there now."""
        return [name for name in self._all() if not name.startswith(_HIDDEN)]

    def unfinished(self) -> dict[str, str]:
        """Hidden files; their names end with the writer's process id."""
        return {name: name[1:].rpartition(".")[0] for name in self._all() if name.startswith(_HIDDEN)}

    def _all(self) -> list[str]:
        try:
            return os.listdir(self._path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SpoolUnusable(f"the spool cannot list {self._path}: {error.strerror}") from error

    def delete(self, names: Iterable[str]) -> None:
        """Remove files."""
        try:
            for name in names:
                (self._path / name).unlink(missing_ok=True)
        except OSError as error:
            raise SpoolUnusable(f"the spool cannot remove files of {self._path}: {error.strerror}") from error


class ArrowStorage:
    """A directory of a pyarrow file system. uri: as executors open it again."""

    def __init__(self, filesystem: arrow_fs.FileSystem, path: str, uri: str) -> None:
        self.uri = uri
        self._filesystem = filesystem
        self._path = path

    def write(self, name: str, data: bytes) -> None:
        """Put the object; it is durable when close() succeeds."""
        try:
            self._filesystem.create_dir(self._path, recursive=True)
            with self._filesystem.open_output_stream(f"{self._path}/{name}") as stream:
                stream.write(data)
        except OSError as error:
            kind = NoRoom if error.errno in _NO_ROOM else SpoolUnusable
            raise kind(f"the spool cannot write {self._path}/{name}: {error}") from error

    def read(self, name: str) -> bytes:
        """The whole object."""
        try:
            with self._filesystem.open_input_stream(f"{self._path}/{name}") as stream:
                data: bytes = stream.read()
            return data
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SpoolUnusable(f"the spool cannot read {self._path}/{name}: {error}") from error

    def names(self) -> list[str]:
        """What is there now."""
        selector = arrow_fs.FileSelector(self._path, allow_not_found=True)
        try:
            return [info.base_name for info in self._filesystem.get_file_info(selector)]
        except OSError as error:
            raise SpoolUnusable(f"the spool cannot list {self._path}: {error}") from error

    def unfinished(self) -> dict[str, str]:
        """None: objects appear whole."""
        return {}

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects."""
        for name in names:
            try:
                self._filesystem.delete_file(f"{self._path}/{name}")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise SpoolUnusable(f"the spool cannot remove {self._path}/{name}: {error}") from error
