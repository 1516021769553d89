"""ClientIdentity: who consumes a destination."""

from __future__ import annotations

from dataclasses import dataclass, field

from canal_ha.model.privacy import ANYTHING, Within

ClientKey = tuple[str, int]  # destination and client id
CLIENT_IDS = range(-(2**15), 2**15)  # signed 16 bit, as canal's


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """One consumer of one destination.

    client_id: one of CLIENT_IDS.
    filter: "" keeps the server's.
    within: the most that the account that asks may read. It is not stored with the client.
    account: its name, for its quotas; "" without one. It is not stored with the client.
    key: what tells one client from another, whatever its filter and account.
    """

    destination: str
    client_id: int
    filter: str = ""
    within: Within = ANYTHING
    account: str = ""
    key: ClientKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (self.destination, self.client_id))
