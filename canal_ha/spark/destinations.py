"""Which destinations an option means: names as they are, globs by what ZooKeeper knows."""

from __future__ import annotations

from fnmatch import fnmatchcase

from canal_ha.errors import OptionInvalid, ZooKeeperUnavailable
from canal_ha.model import znode_tree
from canal_ha.spark.options import GLOB_CHARACTERS, SourceOptions

CONNECT_TIMEOUT_S = 10.0


def resolve(options: SourceOptions) -> tuple[str, ...]:
    """Names, sorted. Raises OptionInvalid when a glob means nothing, ZooKeeperUnavailable."""
    names = {name for name in options.destinations if not _is_glob(name)}
    globs = [name for name in options.destinations if _is_glob(name)]
    if globs:
        known = _known(options.zk_servers)
        found = {name for name in known for glob in globs if fnmatchcase(name, glob)}
        if not found | names:
            raise OptionInvalid(
                f"canal: option destination = {','.join(globs)!r} fits no destination that ZooKeeper knows:"
                f" {', '.join(sorted(known)) or 'there is none'}"
            )
        names |= found
    return tuple(sorted(names))


def _is_glob(name: str) -> bool:
    return any(character in name for character in GLOB_CHARACTERS)


def _known(servers: str) -> list[str]:
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException, NoNodeError
    from kazoo.handlers.threading import KazooTimeoutError

    client = KazooClient(hosts=servers, read_only=True)
    try:
        client.start(timeout=CONNECT_TIMEOUT_S)
        return list(client.get_children(znode_tree.DESTINATIONS))
    except NoNodeError:
        return []
    except (KazooTimeoutError, KazooException) as error:
        raise ZooKeeperUnavailable(f"canal: no ZooKeeper answers at {servers}: {error}") from error
    finally:
        client.stop()
        client.close()
