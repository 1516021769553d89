"""The nodes to connect to, from a fixed list or from ZooKeeper (docs/protocol.md#discovery). Pure.

An address is `host:port`; IPv6 with or without brackets: `10.0.0.1:11111`, `[fd00::1]:11111`, `fd00::1:11111`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerNode:
    """A node that may run the destination.

    generation: czxid of the `running` node, which differs after a restart at the same address; 0 if unknown.
    """

    address: str
    generation: int = 0


def split_address(text: str) -> tuple[str, int]:
    """Split an address into host and port. Raises ValueError."""
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not host:port")
    return host, int(port)


class FixedList:
    """The caller's addresses in a round. A connector finds the right one by trying."""

    runs: ServerNode | None = None

    def __init__(self, addresses: Sequence[str]) -> None:
        """Store the addresses. Raises ValueError for an empty list or an invalid address."""
        if not addresses:
            raise ValueError("at least 1 node required.")
        for address in addresses:
            split_address(address)
        self._addresses = tuple(address.strip() for address in addresses)
        self._next = 0

    def next(self) -> ServerNode | None:
        """Return the node to try next."""
        address = self._addresses[self._next]
        self._next = (self._next + 1) % len(self._addresses)
        return ServerNode(address)


class Discovered:
    """The nodes in the destination's `running` and `cluster` znodes. shuffle: like random.shuffle.

    runs: the node that holds `running`, None if there is none.
    """

    def __init__(self, shuffle: Callable[[list[str]], None]) -> None:
        self.runs: ServerNode | None = None
        self._shuffle = shuffle
        self._members: list[str] = []

    def running_is(self, address: str, generation: int) -> None:
        """Store the content of `running`. An invalid address (an operator's edit) is ignored."""
        try:
            split_address(address)
        except ValueError:
            return
        self.runs = ServerNode(address, generation)

    def running_is_gone(self) -> None:
        """Note that there is no `running`."""
        self.runs = None

    def members_are(self, names: Iterable[str]) -> None:
        """Store the children of `cluster`."""
        found = []
        for name in names:
            try:
                split_address(name)
            except ValueError:
                continue
            found.append(name)
        if set(found) != set(self._members):
            self._shuffle(found)
            self._members = found

    def next(self) -> ServerNode | None:
        """Return the node to try next: the owner, else any member, else None."""
        if self.runs is not None:
            return self.runs
        return ServerNode(self._members[0]) if self._members else None
