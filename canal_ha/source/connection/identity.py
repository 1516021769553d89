"""Who a dump says it is: server id, uuid and name in the source's list of replicas. Pure.

MySQL ends an older dump with the same uuid, MariaDB one with the same server id. All three are therefore derived from
what a stream is, not from the node: when another node takes the stream over, its dump ends the one left behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID, uuid5

NAMESPACE = UUID("5a1fd6bc-5c4d-4e0c-9d6e-0c7f0f3a1e11")  # drawn once; changing it would leave old dumps running
NAME_BYTES_MAX = 60  # HOSTNAME_LENGTH of servers before MySQL 8.0.17 and MariaDB 10.6; longer names are refused

_DERIVED_FROM = 1 << 30  # derived server ids lie in 2**30 .. 2**31-1: people count from 1, and some tools read signed


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """One dump. server_id: configured, or 0 to take a derived one; uuid: text; name: shown as Host in the list."""

    server_id: int
    uuid: str
    name: str

    def server_ids(self) -> Iterator[int]:
        """Server ids to try, in order: the configured one alone, else derived ones without end."""
        if self.server_id:
            yield self.server_id
            return
        attempt = 0
        while True:
            digest = sha256(f"{self.uuid}/{attempt}".encode()).digest()
            yield _DERIVED_FROM | int.from_bytes(digest[:4], "big") % _DERIVED_FROM
            attempt += 1


@dataclass(frozen=True, slots=True)
class Replica:
    """One line of SHOW REPLICAS. uuid: "" on MariaDB, which lists none."""

    server_id: int
    host: str
    uuid: str = ""


def replica(destination: str, client_id: int, *, server_id: int = 0, read: str = "") -> ReplicaIdentity:
    """The identity of a stream. server_id: configured for it, 0 derives one; read: tells private reads apart."""
    name = f"canal-ha/{destination}/{client_id}{'/' if read else ''}{read}"
    uuid = str(uuid5(NAMESPACE, name))
    return ReplicaIdentity(
        server_id=server_id,
        uuid=uuid,
        name=name if len(name.encode()) <= NAME_BYTES_MAX else f"canal-ha/{uuid}",
    )


def free_server_id(identity: ReplicaIdentity, replicas: tuple[Replica, ...], source_server_id: int) -> int | None:
    """The first server id that neither the source nor another replica has; None when the configured one is taken.

    An id that this very identity holds is free: the dump that is still listed ends when the new one begins.
    """
    taken = {other.server_id for other in replicas if not _same(identity, other)} | {source_server_id}
    return next((candidate for candidate in identity.server_ids() if candidate not in taken), None)


def _same(identity: ReplicaIdentity, other: Replica) -> bool:
    return other.uuid == identity.uuid if other.uuid else other.host == identity.name
