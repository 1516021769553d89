"""GetRequest: what one GET asks for. It is passed on as it is, from the packet to the stream that answers it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GetRequest:
    """One GET of a client, without the client's identity.

    fetch_size: how much a batch holds at most, in entries or in units of memory (BatchMode).
    wait_ms: how long to wait for `fetch_size`; 0.0 takes what is there now, None waits without limit.
    eager: a wait ends as soon as there is anything.
    exact: values are in the exact form (docs/protocol.md#exact), not in canal's.
    one_server: the client was told its cursor, and takes all entries for those of the cursor's server.
    """

    fetch_size: int
    wait_ms: float | None
    eager: bool = False
    exact: bool = False
    one_server: bool = False
