"""FileArea: a directory of a target, local or in an object store, whose files appear complete."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.fs as arrow_fs

from canal_ha.errors import OptionInvalid
from canal_ha.pipeline.paths import without_login

PENDING = ".pending"  # ends the name of a file that is not published


class FileArea:
    """See the module. All names start at its path. Methods raise OSError.

    path: directory or URI.
    """

    def __init__(self, path: str) -> None:
        """Raise OptionInvalid for a path that cannot be opened."""
        where = without_login(path)
        try:
            if "://" in path:
                self._files, base = arrow_fs.FileSystem.from_uri(path)
            else:
                self._files, base = arrow_fs.LocalFileSystem(), str(Path(path).absolute())
        except (OSError, ValueError) as error:
            raise OptionInvalid(
                f"parquet: path = {where!r} cannot be opened: {str(error).replace(path, where)}"
            ) from None
        self._base = base.rstrip("/")
        self._local = isinstance(self._files, arrow_fs.LocalFileSystem)

    def names(self, directory: str) -> list[str]:
        """Return the names of the files of a directory, without it; none if it is missing."""
        try:
            found = self._files.get_file_info(arrow_fs.FileSelector(f"{self._base}/{directory}"))
        except FileNotFoundError:
            return []
        return [info.base_name for info in found if info.is_file]

    def read(self, name: str) -> bytes:
        """Return what a file has. Raises FileNotFoundError."""
        with self._files.open_input_stream(f"{self._base}/{name}") as stream:
            return bytes(stream.read())

    def is_missing(self, name: str) -> bool:
        """Return whether there is no such file."""
        return bool(self._files.get_file_info(f"{self._base}/{name}").type == arrow_fs.FileType.NotFound)

    def delete(self, name: str) -> None:
        """Delete a file; one that is gone already, too."""
        try:
            self._files.delete_file(f"{self._base}/{name}")
        except OSError:
            if not self.is_missing(name):
                raise

    def move(self, name: str, place: str) -> None:
        """Move a file, and make its new name durable."""
        directory = f"{self._base}/{place}".rpartition("/")[0]
        self._files.create_dir(directory, recursive=True)
        self._files.move(f"{self._base}/{name}", f"{self._base}/{place}")
        self._sync(directory)

    def write(self, name: str, data: bytes) -> None:
        """Write a durable file, replacing an existing one at once."""
        path = f"{self._base}/{name}"
        directory = path.rpartition("/")[0]
        self._files.create_dir(directory, recursive=True)
        if not self._local:
            with self._files.open_output_stream(path) as stream:  # the object appears when it is complete
                stream.write(data)
            return
        under_way = f"{path}.{os.getpid()}{PENDING}"
        with open(under_way, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(under_way, path)
        self._sync(directory)

    def _sync(self, directory: str) -> None:
        """Make new names in a local directory durable."""
        if self._local:
            descriptor = os.open(directory, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
