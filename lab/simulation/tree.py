"""Tree: the nodes of a simulated ensemble by path.

A copy shares everything with the original, so it takes no time and no memory. The simulation keeps a copy after each
change, because followers answer from the past.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from types import MappingProxyType

from rpds import HashTrieMap

from canal_ha.zookeeper.operations import Znode

_NO_NODES: Mapping[str, Znode] = MappingProxyType({})
_NO_NAMES: HashTrieMap[str, None] = HashTrieMap()


class Tree(MutableMapping[str, Znode]):
    """See the module. Changes of a copy do not show in the other tree. The order of the paths is not defined."""

    __slots__ = ("_names", "_nodes")

    def __init__(self, nodes: Mapping[str, Znode] = _NO_NODES) -> None:
        """nodes: by path."""
        self._nodes: HashTrieMap[str, Znode] = HashTrieMap()
        self._names: HashTrieMap[str, HashTrieMap[str, None]] = HashTrieMap()  # of the children, by the parent's path
        self.update(nodes)

    def copy(self) -> Tree:
        """Return a tree with the same nodes."""
        same = Tree()
        same._nodes, same._names = self._nodes, self._names
        return same

    def children(self, path: str) -> tuple[str, ...]:
        """Return the names of the children, sorted; none of a node that does not exist."""
        return tuple(sorted(self._names.get(path) or ()))

    def __getitem__(self, path: str) -> Znode:
        return self._nodes[path]

    def __setitem__(self, path: str, node: Znode) -> None:
        if path and path not in self._nodes:
            parent, _, name = path.rpartition("/")
            self._names = self._names.insert(parent, (self._names.get(parent) or _NO_NAMES).insert(name, None))
        self._nodes = self._nodes.insert(path, node)

    def __delitem__(self, path: str) -> None:
        self._nodes = self._nodes.remove(path)
        parent, _, name = path.rpartition("/")
        if path:
            self._names = self._names.insert(parent, self._names[parent].remove(name))

    def __contains__(self, path: object) -> bool:
        return path in self._nodes

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)
