"""ClientIdentity: who consumes a destination."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """One consumer of one destination. client_id: signed 16 bit, as canal's; filter: "" keeps the server's."""

    destination: str
    client_id: int
    filter: str = ""
