"""A destination without room for one more stream refuses before anything becomes durable."""

from __future__ import annotations

import pytest

from canal_ha.errors import TooManyStreams
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.place import Place
from tests.server.harness import Served, on_reactor


def test_a_subscription_that_finds_no_room_leaves_no_cursor_behind() -> None:
    """Private reads take all streams; SUBSCRIBE of a new client id is refused, and a new start knows no such client."""
    with Served(config={"stream_max": 2}) as served:
        reads = [
            on_reactor(lambda: served.embedded.read_from(ClientIdentity("example", 1), Place(end="latest"), None))
            for _ in range(2)
        ]
        with pytest.raises(TooManyStreams, match=r"canal\.instance\.stream\.max"):
            on_reactor(lambda: served.embedded.subscribe(ClientIdentity("example", 1001)))
        assert not served.meta.clients()
        assert not served.durable().clients
        reads[0].close()
        on_reactor(lambda: served.embedded.subscribe(ClientIdentity("example", 1001)))
        assert [client.client_id for client in served.meta.clients()] == [1001]
        on_reactor(lambda: served.embedded.subscribe(ClientIdentity("example", 1001)))  # its stream is open already
