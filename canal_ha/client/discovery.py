"""Which nodes there are to connect to: a fixed list, or what ZooKeeper says (docs/protocol.md#discovery). Pure.

An address is `host:port`; IPv6 with or without brackets: `10.0.0.1:11111`, `[fd00::1]:11111`, `fd00::1:11111`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerNode:
    """A node that may run the destination.

    generation: tells one `running` node from the next at the same address (its czxid); 0 when nobody vouches for it.
    """

    address: str
    generation: int = 0


def split_address(text: str) -> tuple[str, int]:
    """Host and port. Raises ValueError saying what is expected."""
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is no host:port")
    return host, int(port)


class FixedList:
    """Addresses given by the caller, one after the other, round and round; which of them runs it is found by asking."""

    runs: ServerNode | None = None

    def __init__(self, addresses: Sequence[str]) -> None:
        """Raises ValueError for an empty list and for what is no address."""
        if not addresses:
            raise ValueError("at least 1 node required.")
        for address in addresses:
            split_address(address)
        self._addresses = tuple(address.strip() for address in addresses)
        self._next = 0

    def next(self) -> ServerNode | None:
        """Whom to try now."""
        address = self._addresses[self._next]
        self._next = (self._next + 1) % len(self._addresses)
        return ServerNode(address)


class Discovered:
    """What the destination's `running` and `cluster` nodes say. shuffle: in place, as random.shuffle.

    runs: the node that holds `running`, None while nobody does.
    """

    def __init__(self, shuffle: Callable[[list[str]], None]) -> None:
        self.runs: ServerNode | None = None
        self._shuffle = shuffle
        self._members: list[str] = []

    def running_is(self, address: str, generation: int) -> None:
        """`running` was read. What is no address (an operator's edit) leaves things as they are."""
        try:
            split_address(address)
        except ValueError:
            return
        self.runs = ServerNode(address, generation)

    def running_is_gone(self) -> None:
        """There is no `running`."""
        self.runs = None

    def members_are(self, names: Iterable[str]) -> None:
        """The children of `cluster` were read."""
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
        """Whom to try now: who runs it, else any node that could, else nobody."""
        if self.runs is not None:
            return self.runs
        return ServerNode(self._members[0]) if self._members else None
