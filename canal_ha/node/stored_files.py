"""The files in which a node keeps a destination: which they are, where they are, and how to delete them. Blocks.

A request can choose the name of a destination and the keys of its file. So only files with known names are deleted,
only in the configuration directory and in the data directory of the node, and a directory only when it is empty.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from canal_ha.config.keys import GROUP_MOST
from canal_ha.config.load import INSTANCE_FILE, DestinationStorage, load_storage
from canal_ha.config.model import CanalConfig, InstanceConfig
from canal_ha.errors import ConfigError, PlacementRefused
from canal_ha.pipeline.paths import segment
from canal_ha.source.history.sql_store import FILE as HISTORY_FILE

REMOVED_FILE = f"{INSTANCE_FILE}.removed"
"""The file of a destination that was removed and not purged."""
_SHOWN_MOST = 10  # names in one text
_SOURCES = frozenset(map(str, range(1, GROUP_MOST + 1)))  # directories of the sources of a group
_HISTORY = frozenset(f"{HISTORY_FILE}{end}" for end in ("", "-wal", "-shm", "-journal"))
_SETTINGS = frozenset({INSTANCE_FILE, REMOVED_FILE})


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """What is in one directory.

    own: names of the files of the destination, relative to the directory.
    others: names of all else.
    exists: whether the directory does.
    """

    directory: Path
    own: tuple[str, ...]
    others: tuple[str, ...]
    exists: bool

    def shown(self, *, settings: bool) -> str:
        """Return the files of the destination for a person; "" without any. settings: also those with its settings."""
        names = [name for name in self.own if settings or name not in _SETTINGS]
        return _shown(self.directory, names) if names else ""

    @property
    def left(self) -> str:
        """What is there besides the files of the destination, for a person; "" if that is nothing."""
        if self.others:
            return _shown(self.directory, self.others)
        return f"{self.directory}, which is empty" if self.exists and not self.own else ""


@dataclass(frozen=True, slots=True)
class StoredDestination:
    """What a node keeps of a destination in files.

    places: directories of the destination that belong to the node; a purge deletes the files of the destination there.
    elsewhere: what no purge deletes; texts for a person.
    """

    places: tuple[StoredFiles, ...]
    elsewhere: tuple[str, ...]


def stored(
    config: CanalConfig, destination: str, instance: InstanceConfig | None, environ: Mapping[str, str]
) -> StoredDestination:
    """Look at what there is.

    config: of the node.
    destination: its name.
    instance: its configuration, if the node has it; else its file counts, or the file that a removal left.
    environ: the process environment.
    Raises PlacementRefused, OSError.
    """
    try:
        nodes = load_storage(config, destination, environ)
    except ConfigError as error:
        raise PlacementRefused(str(error)) from error
    its = _storage_of(instance) if instance else _read_storage(config, destination, environ) or nodes
    directories = tuple(dict.fromkeys((nodes.data_dir / destination, config.conf_dir / destination)))
    elsewhere = []
    if its.data_dir / destination not in directories:
        found = look(its.data_dir / destination, destination)
        if found.own:
            elsewhere.append(
                f"{found.shown(settings=True)}, because canal.file.data.dir of the destination is not that of the node"
            )
    if its.history_dir not in (*directories, its.data_dir / destination) and look(its.history_dir, destination).own:
        elsewhere.append(f"the history of its tables in {its.history_dir}")
    if its.history_url:
        elsewhere.append(f"the history of its tables in MySQL, {_without_login(its.history_url)}")
    return StoredDestination(tuple(look(each, destination) for each in directories), tuple(elsewhere))


def look(directory: Path, destination: str) -> StoredFiles:
    """Look into a directory. One that does not exist has no files. Raises OSError."""
    kept = _SETTINGS | _HISTORY | {"meta.dat", "parse.dat", "paused", f"{segment(destination)}.digests"}
    known = kept | {f"{name}.new" for name in kept}  # a file that a crash left while it was written
    own: list[str] = []
    others: list[str] = []
    try:
        for name, is_directory in _entries(directory):
            if is_directory and name in _SOURCES:
                for inner, _ in _entries(directory / name):
                    (own if inner in _HISTORY else others).append(f"{name}/{inner}")
            else:
                (own if name in known and not is_directory else others).append(name)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a key can have a character that no path has
        return StoredFiles(directory, (), (), False)
    return StoredFiles(directory, tuple(sorted(own)), tuple(sorted(others)), True)


def refuse_what_cannot_be_deleted(places: Sequence[StoredFiles]) -> None:
    """Raise PlacementRefused for a directory that is a link, and PermissionError for one that may not be written."""
    for place in places:
        if place.directory.is_symlink():
            raise PlacementRefused(f"{place.directory} is a link: delete what it leads to by hand")
        if place.own:
            check_writable(place.directory)


def check_writable(directory: Path) -> None:
    """Raise PermissionError if the process may not change what is in a directory."""
    if not os.access(directory, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))


def delete(places: Sequence[StoredFiles]) -> None:
    """Delete the files of the destination, and the directories that are empty then. Raises OSError."""
    for place in places:
        for name in place.own:
            (place.directory / name).unlink(missing_ok=True)
        sources = {(place.directory / name).parent for name in place.own} - {place.directory}
        for directory in (*sources, place.directory) if place.own else ():
            with suppress(OSError):  # it is not empty, or it is a mount; what is left is reported
                directory.rmdir()


def _entries(directory: Path) -> list[tuple[str, bool]]:
    """Return the names in a directory, each with whether it is a directory, and no link to one."""
    with os.scandir(directory) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]


def _storage_of(instance: InstanceConfig) -> DestinationStorage:
    url = instance.tsdb_url if instance.decode.table_history else ""
    return DestinationStorage(instance.data_dir, Path(instance.tsdb_dir), url)


def _read_storage(config: CanalConfig, destination: str, environ: Mapping[str, str]) -> DestinationStorage | None:
    for name in (INSTANCE_FILE, REMOVED_FILE):
        file = config.conf_dir / destination / name
        if file.is_file():
            with suppress(ConfigError):  # the node does not use such a file either
                return load_storage(config, destination, environ, file)
    return None


def _without_login(url: str) -> str:
    try:
        parts = urlsplit(url.removeprefix("jdbc:"))
        return f"{parts.hostname or '127.0.0.1'}:{parts.port or 3306}/{parts.path.strip('/')}"
    except ValueError:  # no port is a number, for example
        return "canal.instance.tsdb.url"


def _shown(directory: Path, names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_MOST} more" if len(names) > _SHOWN_MOST else ""
    return f"{directory}: {', '.join(names[:_SHOWN_MOST])}{more}"
