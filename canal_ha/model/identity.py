"""ClientIdentity: who consumes a destination."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """One consumer of one destination.

    client_id: signed 16 bit, as canal's.
    filter: "" keeps the server's.
    within: the widest table filter of the account that asks; "": any. It is not stored with the client.
    account: its name, for its quotas; "" without one. It is not stored with the client.
    """

    destination: str
    client_id: int
    filter: str = ""
    within: str = ""
    account: str = ""
