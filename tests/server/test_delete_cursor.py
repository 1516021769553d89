"""A cursor is deleted only while nobody is connected with its client id."""

from __future__ import annotations

import pytest

from canal_ha.errors import ClientConnected, NotSubscribed
from canal_ha.model.position import LogPosition
from tests.server.harness import LOOPBACK, Served, on_reactor
from tests.server.raw_client import RawClient
from tests.waiting import until


def deleted(served: Served, *, dry_run: bool = False) -> LogPosition:
    """Delete the cursor of client 1001."""
    return on_reactor(lambda: served.embedded.delete_cursor("example", 1001, dry_run=dry_run))


@pytest.mark.parametrize("reads", [False, True], ids=["subscribed", "reading"])
def test_the_cursor_of_a_connected_client_is_not_deleted(reads: bool) -> None:
    """The client would subscribe again as a new one and miss rows. The error names its address."""
    with Served() as served:
        with RawClient(served) as client:
            client.subscribe()
            assert client.refusal() == (0, "")
            before = served.meta.cursor(1001)
        until(lambda: not served.service.counters.connections)
        with RawClient(served) as client:
            if reads:
                client.get(size=1)
                assert client.fetched().batch_id == -1
            else:
                client.subscribe()
                assert client.refusal() == (0, "")
            for dry_run in (True, False):
                with pytest.raises(ClientConnected, match=f"in use by {LOOPBACK}: stop that process first"):
                    deleted(served, dry_run=dry_run)
            assert served.meta.cursor(1001) == before
        until(lambda: not served.service.counters.connections)
        assert deleted(served, dry_run=True) == before
        assert deleted(served) == before
        assert served.durable().cursors == {}
        with pytest.raises(NotSubscribed):
            deleted(served)


def test_a_connection_with_another_client_id_keeps_no_cursor() -> None:
    """Only the client id itself is in use."""
    with Served() as served:
        with RawClient(served) as client:
            client.subscribe()
            assert client.refusal() == (0, "")
        until(lambda: not served.service.counters.connections)
        with RawClient(served) as other:
            other.names["client_id"] = "1002"
            other.subscribe()
            assert other.refusal() == (0, "")
            deleted(served)
            assert set(served.durable().clients) == {1002}
