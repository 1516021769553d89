"""The znode tree, drawn once, and the JSON of `running` (docs/protocol.md#znodes).

/otter/canal
  cluster/{n}                  ephemeral   a live node; n is registerIp:port; its data is the status endpoint
  nodes/{n}                    persistent  a node that has not ended in good order; it is missing without cluster/{n}
  destinations/{d}             persistent  its data version is the epoch of ownership
    cluster/{n}                ephemeral   a node that could run this destination; its data says how well
    running                    ephemeral   {"active":true,"address":"n"}: who runs it
    paused                     persistent  while it exists, no node of canal-ha runs this destination
    parse                      persistent  where the first client starts, until it has a cursor
    source                     persistent  host:port of the server that was switched to; one for each source of a group
    history[/{n}]              persistent  index of the table history; {n}: of one source of a group
      {part}                   persistent  tables or statements, compressed
    {c}                        persistent  one client id, in decimal
      cursor                   persistent  position of the last acknowledged entry
      filter                   persistent  filter text as subscribed, not JSON
      running                  ephemeral   which client process is active
      mark/{id}                persistent  written by canal's other meta modes only
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

ROOT = "/otter/canal"
CLUSTER = f"{ROOT}/cluster"
NODES = f"{ROOT}/nodes"
DESTINATIONS = f"{ROOT}/destinations"
RUNNING_BYTES = 4096  # of the JSON of `running`; an address is far shorter


def member(node: str) -> str:
    """Path of a live node. node: registerIp:port."""
    return f"{CLUSTER}/{node}"


def known_node(node: str) -> str:
    """Path of the znode that lasts from a node's first start to its orderly stop. node: registerIp:port."""
    return f"{NODES}/{node}"


def destination(name: str) -> str:
    """Path of the destination, whose data version is the epoch."""
    return f"{DESTINATIONS}/{name}"


def destination_members(name: str) -> str:
    """Parent path of the nodes that could run the destination."""
    return f"{destination(name)}/cluster"


def destination_member(name: str, node: str) -> str:
    """Path of one node that could run the destination."""
    return f"{destination_members(name)}/{node}"


def tells_who_runs(path: str) -> bool:
    """Return whether clients read this node to find the owner of a destination."""
    parts = path.removeprefix(f"{DESTINATIONS}/").split("/")
    return path.startswith(f"{DESTINATIONS}/") and (
        parts[1:] == ["running"] or (len(parts) in (2, 3) and parts[1] == "cluster")
    )


def running(name: str) -> str:
    """Path of the node that names the owner of the destination."""
    return f"{destination(name)}/running"


def paused(name: str) -> str:
    """Path of the node that keeps the destination stopped."""
    return f"{destination(name)}/paused"


def parse(name: str) -> str:
    """Path of the position where the destination's first client starts."""
    return f"{destination(name)}/parse"


def source(name: str) -> str:
    """Path of the servers that the destination was switched to last."""
    return f"{destination(name)}/source"


def history(name: str) -> str:
    """Path of the index of a table history. name: of a destination, or <destination>/<number> of one source."""
    base, _, number = name.partition("/")
    return f"{destination(base)}/history/{number}".rstrip("/")


def client(name: str, client_id: int) -> str:
    """Path of one client id."""
    return f"{destination(name)}/{client_id}"


def client_id_of(child: str) -> int | None:
    """Return the client id that a child of a destination stands for; None for any other name.

    Anybody with the right can create children of any name. A client id is a whole number of 16 bits as `client` writes
    it, so no two names mean one client.
    """
    if not _CLIENT_ID.fullmatch(child) or str(int(child)) != child:
        return None
    return int(child) if -(1 << 15) <= int(child) < 1 << 15 else None


def client_ids(children: Iterable[str]) -> tuple[int, ...]:
    """Return the client ids among the children of a destination, sorted."""
    return tuple(sorted(each for each in map(client_id_of, children) if each is not None))


def strangers(children: Iterable[str]) -> tuple[str, ...]:
    """Return the children of a destination that are not part of this tree."""
    return tuple(child for child in children if child not in _BESIDE_CLIENTS and client_id_of(child) is None)


_CLIENT_ID = re.compile("-?[0-9]{1,5}")
_BESIDE_CLIENTS = frozenset({"cluster", "running", "paused", "parse", "source", "history"})


def cursor(name: str, client_id: int) -> str:
    """Path of the client's cursor."""
    return f"{client(name, client_id)}/cursor"


def client_filter(name: str, client_id: int) -> str:
    """Path of the client's filter text."""
    return f"{client(name, client_id)}/filter"


def client_running(name: str, client_id: int) -> str:
    """Path of the node that names the active process of this client id."""
    return f"{client(name, client_id)}/running"


@dataclass(frozen=True, slots=True)
class RunningData:
    """The data of a `running` node (docs/protocol.md#running-json).

    address: ip:port of the owner; a client without a connection gives its host alone.
    active: False asks the owner to release the node.
    client_id: only a client's node has it.
    successor: the node that shall run the destination next; "" for any. Canal ignores it.
    """

    address: str
    active: bool = True
    client_id: int | None = None
    successor: str = ""

    def to_bytes(self) -> bytes:
        """Return canal's exact text: no blanks, keys in alphabetical order."""
        body: dict[str, object] = {"active": self.active, "address": self.address}
        if self.client_id is not None:
            body["clientId"] = self.client_id
        if self.successor:
            body["successor"] = self.successor
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> RunningData:
        """Read what a peer or an operator wrote. Unknown keys are ignored; a missing `active` means true.

        Bytes that are not a JSON object, or more than RUNNING_BYTES, give an empty address, because the node still has
        an owner. So does an address that is no text, or one that nobody could print.
        """
        try:
            body = json.loads(data) if len(data) <= RUNNING_BYTES else None
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            return cls(address="")
        client_id = body.get("clientId")
        return cls(
            address=_printable(body.get("address")),
            active=body.get("active") is not False,
            client_id=client_id if type(client_id) is int else None,
            successor=_printable(body.get("successor")),
        )


@dataclass(frozen=True, slots=True)
class MemberData:
    """The data of `{d}/cluster/{n}`. A Java node and one of an earlier version write none.

    preferred: the node has all labels that the destination prefers.
    lazy: the destination starts at its first client.
    """

    preferred: bool = True
    lazy: bool = False

    def to_bytes(self) -> bytes:
        """Return the JSON text."""
        return json.dumps({"preferred": self.preferred, "lazy": self.lazy}, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> MemberData | None:
        """Read the data; None if no such node wrote it, so that no destination can be handed to it."""
        try:
            body = json.loads(data) if len(data) <= RUNNING_BYTES else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(body, dict):
            return None
        return cls(body.get("preferred") is not False, body.get("lazy") is True)


def _printable(text: object) -> str:
    return text if isinstance(text, str) and text.isprintable() else ""
