"""The znode tree, drawn once, and the JSON of `running` (docs/protocol.md#znodes).

/otter/canal
  cluster/{n}                  ephemeral   a live node; n is registerIp:port; its data is the status endpoint
  destinations/{d}             persistent  its data version is the epoch of ownership
    cluster/{n}                ephemeral   a node that could run this destination
    running                    ephemeral   {"active":true,"address":"n"}: who runs it
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
from dataclasses import dataclass

ROOT = "/otter/canal"
CLUSTER = f"{ROOT}/cluster"
DESTINATIONS = f"{ROOT}/destinations"


def member(node: str) -> str:
    """Path of a live node. node: registerIp:port."""
    return f"{CLUSTER}/{node}"


def destination(name: str) -> str:
    """Path of the destination, whose data version is the epoch."""
    return f"{DESTINATIONS}/{name}"


def destination_members(name: str) -> str:
    """Parent path of the nodes that could run the destination."""
    return f"{destination(name)}/cluster"


def destination_member(name: str, node: str) -> str:
    """Path of one node that could run the destination."""
    return f"{destination_members(name)}/{node}"


def running(name: str) -> str:
    """Path of the node that names the owner of the destination."""
    return f"{destination(name)}/running"


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
    """

    address: str
    active: bool = True
    client_id: int | None = None

    def to_bytes(self) -> bytes:
        """Return canal's exact text: no blanks, keys in alphabetical order."""
        body: dict[str, object] = {"active": self.active, "address": self.address}
        if self.client_id is not None:
            body["clientId"] = self.client_id
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> RunningData:
        """Read what a peer or an operator wrote. Unknown keys are ignored; a missing `active` means true.

        Bytes that are not a JSON object give an empty address, because the node still has an owner.
        """
        try:
            body = json.loads(data)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return cls(address="")
        client_id = body.get("clientId")
        return cls(
            address=str(body.get("address") or ""),
            active=body.get("active") is not False,
            client_id=client_id if isinstance(client_id, int) else None,
        )
