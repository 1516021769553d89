"""The identity of a dump: server id, uuid and name in the source's list of replicas. Pure.

MySQL ends an older dump with the same uuid, MariaDB one with the same server id. So all three are derived from the
stream, not from the node: when another node takes the stream over, its dump ends the old one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID, uuid5

NAMESPACE = UUID("5a1fd6bc-5c4d-4e0c-9d6e-0c7f0f3a1e11")  # chosen once; a new one would leave old dumps running
NAME_BYTES_MAX = 60  # HOSTNAME_LENGTH of servers before MySQL 8.0.17 and MariaDB 10.6; they refuse longer names

_DERIVED_FROM = 1 << 30  # derived server ids are 2**30 .. 2**31-1: people count from 1, and some tools read signed


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """One dump. server_id: configured, or 0 to derive one; uuid: text; name: shown as Host in the list of replicas."""

    server_id: int
    uuid: str
    name: str

    def server_ids(self) -> Iterator[int]:
        """Yield server ids to try, in order: the configured one only, or derived ones without end."""
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
    """One row of SHOW REPLICAS. uuid: "" on MariaDB, which does not list it."""

    server_id: int
    host: str
    uuid: str = ""


def replica(destination: str, client_id: int, *, server_id: int = 0, read: str = "") -> ReplicaIdentity:
    """Return the identity of a stream.

    destination, client_id: the stream.
    server_id: as configured; 0 to derive one.
    read: unique text of a private read; "" for the client's stream.
    """
    name = f"canal-ha/{destination}/{client_id}{'/' if read else ''}{read}"
    uuid = str(uuid5(NAMESPACE, name))
    return ReplicaIdentity(
        server_id=server_id,
        uuid=uuid,
        name=name if len(name.encode()) <= NAME_BYTES_MAX else f"canal-ha/{uuid}",
    )


def shared_replica(destination: str, number: str) -> ReplicaIdentity:
    """Return the identity of a dump that several streams of a destination share. number: unique text."""
    name = f"canal-ha/{destination}/shared/{number}"
    uuid = str(uuid5(NAMESPACE, name))
    return ReplicaIdentity(0, uuid, name if len(name.encode()) <= NAME_BYTES_MAX else f"canal-ha/{uuid}")


def tap_replica(number: str) -> ReplicaIdentity:
    """Return the identity of a dump whose bytes many streams read. number: unique text."""
    name = f"canal-ha/tap/{number}"
    return ReplicaIdentity(0, str(uuid5(NAMESPACE, name)), name)


def free_server_id(identity: ReplicaIdentity, replicas: tuple[Replica, ...], source_server_id: int) -> int | None:
    """Return the first server id that neither the source nor another replica uses; None if the configured one is taken.

    identity: of the new dump. An id that the same identity holds is free: the listed dump ends when the new one begins.
    replicas: those registered with the source.
    source_server_id: the source's own.
    """
    taken = {other.server_id for other in replicas if not _same(identity, other)} | {source_server_id}
    return next((candidate for candidate in identity.server_ids() if candidate not in taken), None)


def _same(identity: ReplicaIdentity, other: Replica) -> bool:
    return other.uuid == identity.uuid if other.uuid else other.host == identity.name
