"""Resolves the option `destination`: names as given, globs against ZooKeeper."""

from __future__ import annotations

from fnmatch import fnmatchcase

from canal_ha.config.kinds import destination
from canal_ha.errors import OptionInvalid
from canal_ha.pipeline.options import GLOB_CHARACTERS, SourceOptions
from canal_ha.zookeeper.reading import BlockingZnodes
from canal_ha.zookeeper.tree import DESTINATIONS


def resolve(options: SourceOptions) -> tuple[str, ...]:
    """Return the sorted names. Raises OptionInvalid for a glob without a match and for a name that no destination can
    have, and ZooKeeperUnavailable.
    """
    names = {name for name in options.destinations if not _is_glob(name)}
    globs = [name for name in options.destinations if _is_glob(name)]
    if globs:
        with BlockingZnodes(options.zk_servers, options.zk_access) as znodes:
            known = znodes.children(DESTINATIONS)
        found = {name for name in known for glob in globs if fnmatchcase(name, glob)}
        if not found | names:
            raise OptionInvalid(
                f"canal: option destination = {','.join(globs)!r} matches no destination in ZooKeeper:"
                f" {', '.join(sorted(known)) or 'there are none'}"
            )
        names |= found
    for name in names:  # each becomes a directory of the spool
        try:
            destination(name)
        except ValueError as error:
            raise OptionInvalid(f"canal: option destination: {name[:200]!r} is no name of a destination") from error
    return tuple(sorted(names))


def _is_glob(name: str) -> bool:
    return any(character in name for character in GLOB_CHARACTERS)
