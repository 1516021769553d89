"""The storage of a spool's files: a local directory, or an object store of pyarrow (S3, GCS, Azure).

Durable means an fsync of file and directory on local file systems. On the others it means a successful close; their
objects appear complete or not at all. A spool also needs that a listing shows all earlier writes, and that a file is
replaced at once; `problem` tells where this is not so. Checkpoints need neither. Raises SpoolUnusable, and NoRoom for a
full disk, where waiting helps.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, unquote, urlsplit

from canal_ha.errors import NoRoom, SpoolUnusable
from canal_ha.pipeline.paths import without_login
from canal_ha.private_files import make_directory, opener, tighten

if TYPE_CHECKING:
    import pyarrow.fs as arrow_fs

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_HIDDEN = "."  # prefix of unfinished files


class Storage(Protocol):
    """One directory of files that are written as a whole."""

    uri: str

    def write(self, name: str, data: bytes) -> None:
        """Write a durable file atomically, replacing an existing one."""

    def read(self, name: str) -> bytes:
        """Return a file's content. Raises FileNotFoundError."""

    def names(self) -> list[str]:
        """Return the names of the files; empty if the directory does not exist."""

    def unfinished(self) -> dict[str, str]:
        """Return unfinished files of running or dead writers: name -> final name."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; missing files are ignored."""

    def tighten(self) -> None:
        """Take other users' access to the files of earlier versions away, if this storage has modes."""

    @property
    def problem(self) -> str:
        """Why a spool cannot be here; "" if it can."""


def open_storage(root: str, *parts: str) -> Storage:
    """Open a storage. root: a path, or a URI for pyarrow; parts: directories below it. Raises SpoolUnusable."""
    local = local_path(root)
    if local is not None:
        return LocalStorage(local.joinpath(*parts).absolute())
    import pyarrow.fs as arrow_fs

    try:
        filesystem, base = arrow_fs.FileSystem.from_uri(root)
    except (OSError, ValueError) as error:
        hint = ": write s3:// instead" if root.startswith(("s3a://", "s3n://")) else ""
        raise SpoolUnusable(f"{without_login(root)} cannot be opened{hint or f': {error}'}") from error
    place, mark, query = root.partition("?")
    uri = "/".join((place.rstrip("/"), *(quote(part, safe="") for part in parts))) + mark + query
    return ArrowStorage(filesystem, "/".join((base.rstrip("/"), *parts)), uri)


def local_path(root: str) -> Path | None:
    """Return the directory of a path or of a file: URI; None for another URI."""
    if "://" not in root:
        return Path(root)
    parts = urlsplit(root)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None


class LocalStorage:
    """A local directory, created at the first write."""

    def __init__(self, path: Path) -> None:
        self.uri = path.as_uri()
        self._path = path

    def write(self, name: str, data: bytes) -> None:
        """Write and fsync a hidden file, rename it, and fsync the directory."""
        under_way = self._path / f"{_HIDDEN}{name}.{os.getpid()}"
        try:
            make_directory(self._path)
            try:
                with open(under_way, "wb", opener=opener) as file:
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
        """Return a file's content."""
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SpoolUnusable(f"the spool cannot read {self._path / name}: {error.strerror}") from error

    def names(self) -> list[str]:
        """Return the names of the finished files."""
        return [name for name in self._all() if not name.startswith(_HIDDEN)]

    def unfinished(self) -> dict[str, str]:
        """Return the hidden files; their names end with the writer's process id."""
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

    def tighten(self) -> None:
        """Change the modes of all files."""
        for name in self._all():
            tighten(self._path / name)

    @property
    def problem(self) -> str:
        """Why NFS with cached listings is unsafe: two drivers can both take themselves for the only writer."""
        kind, options = mount_of(self._path, _mounts())
        if not kind.startswith("nfs") or {"noac", "acdirmax=0"} & set(options.split(",")):
            return ""
        return (
            f"{self._path} is on NFS, which shows a new writer of the spool late. Mount it with the option noac or"
            " actimeo=0, or put the spool into an object store"
        )


class ArrowStorage:
    """A directory of a pyarrow file system. uri: executors open it again by this URI."""

    def __init__(self, filesystem: arrow_fs.FileSystem, path: str, uri: str) -> None:
        self.uri = uri
        self._filesystem = filesystem
        self._path = path
        self._made = False

    def write(self, name: str, data: bytes) -> None:
        """Write the object; it is durable after a successful close."""
        try:
            if not self._made:  # S3 needs several requests for it
                self._filesystem.create_dir(self._path, recursive=True)
                self._made = True
            with self._filesystem.open_output_stream(f"{self._path}/{name}") as stream:
                stream.write(data)
        except OSError as error:
            kind = NoRoom if error.errno in _NO_ROOM else SpoolUnusable
            raise kind(f"the spool cannot write {self._path}/{name}: {error}") from error

    def read(self, name: str) -> bytes:
        """Return an object's content."""
        try:
            with self._filesystem.open_input_stream(f"{self._path}/{name}") as stream:
                data: bytes = stream.read()
            return data
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SpoolUnusable(f"the spool cannot read {self._path}/{name}: {error}") from error

    def names(self) -> list[str]:
        """Return the names of the objects."""
        import pyarrow.fs as arrow_fs

        selector = arrow_fs.FileSelector(self._path, allow_not_found=True)
        try:
            return [info.base_name for info in self._filesystem.get_file_info(selector)]
        except OSError as error:
            raise SpoolUnusable(f"the spool cannot list {self._path}: {error}") from error

    def unfinished(self) -> dict[str, str]:
        """Return nothing: objects appear complete."""
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

    def tighten(self) -> None:
        """Change nothing: the bucket's policy decides who reads its objects."""

    @property
    def problem(self) -> str:
        """Why HDFS is unsafe: a crash while it replaces a file leaves the file empty."""
        if self._filesystem.type_name != "hdfs":
            return ""
        return (
            f"{self.uri} is on HDFS, which cannot replace a file at once: a crash of the driver could damage the spool."
            " Put it into a directory that all machines share, or into an object store (s3://, gs://, abfs://);"
            " the checkpoint can stay on HDFS"
        )


def mount_of(path: Path, mounts: str) -> tuple[str, str]:
    """Return type and options of the file system that a directory is on. mounts: as in /proc/mounts, see proc(5)."""
    best, found = -1, ("", "")
    for line in mounts.splitlines():
        _, place, kind, options, *_ = line.split(" ")
        place = place.encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")  # \040 is a blank
        if path.is_relative_to(place) and len(place) >= best:  # a later mount hides an earlier one
            best, found = len(place), (kind, options)
    return found


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text()
    except OSError:  # not Linux
        return ""
