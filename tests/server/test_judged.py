"""Connectors with a judge, over TCP: a refused query changes nothing, and no row arrives before the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from canal_ha.client.cluster import ClusterConnector
from canal_ha.config.model import BatchMode
from canal_ha.errors import ClientIdTaken
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import ANYTHING
from canal_ha.model.snapshot import SnapshotAction, SnapshotRequest
from tests.server.harness import JOURNAL, LOOPBACK, Served, on_reactor
from tests.server.raw_client import RawClient
from tests.server.test_regained import A_TRANSACTION, WAIT_MS, cursor, end_of, fetch, numbers, push

ITEMS = {"batch_mode": BatchMode.ITEMSIZE}
Judge = Callable[[LogPosition | None], None]


def connector(served: Served, judge: Judge, filter: str = "") -> ClusterConnector:
    """Return a connector with the settings of Spark's driver."""
    return ClusterConnector(
        [f"{LOOPBACK}:{served.port}"],
        "example",
        filter=filter,
        retry_interval_ms=100,
        rollback_on_disconnect=True,
        judge=judge,
    )


def refuse(told: LogPosition | None) -> None:
    """Refuse the query, because another one uses its client id."""
    raise ClientIdTaken("another spool has this client id")


@pytest.mark.parametrize("filter", [r"shop\.orders", ""], ids=["another filter", "no filter"])
def test_a_refused_query_changes_no_filter_and_takes_back_no_batch(filter: str) -> None:
    """The first query keeps its feed, its batch, its connection and its filter, also the durable one."""
    with Served(config=ITEMS) as served:
        first = connector(served, lambda told: None, r"shop\..*")
        first.connect()
        push(served, 1, 2)
        held = first.get_without_ack(A_TRANSACTION, WAIT_MS)
        known, feeds = served.durable().clients, len(served.feeds)
        for _ in range(2):
            with pytest.raises(ClientIdTaken):
                connector(served, refuse, filter).connect()
        assert served.durable().clients == known
        assert served.meta.clients()[0].filter == r"shop\..*"
        assert len(served.feeds) == feeds
        first.ack(held.id)
        rest = first.get_without_ack(A_TRANSACTION, WAIT_MS)
        assert (held.id, numbers(held.raw_entries), rest.id, numbers(rest.raw_entries)) == (1, [1], 2, [2])
        assert first.connection == 1
        first.ack(rest.id)
        first.disconnect()
        assert cursor(served) == end_of(2)


def test_a_refused_query_opens_no_parked_stream() -> None:
    """The judge needs the cursor, and not a dump of the source that nobody reads."""
    with Served(config=ITEMS) as served:
        first = connector(served, lambda told: None, r"shop\..*")
        first.connect()
        push(served, 1)
        first.ack(first.get_without_ack(A_TRANSACTION, WAIT_MS).id)
        first.disconnect()

        async def park() -> None:
            instance = served.embedded.running("example")
            assert instance is not None
            instance._streams[1001]._asked_at -= 10_000
            instance._streams[1001].park_if_idle()

        on_reactor(park)
        feeds = len(served.feeds)
        with pytest.raises(ClientIdTaken):
            connector(served, refuse).connect()
        assert len(served.feeds) == feeds
        second = connector(served, lambda told: None)
        second.connect()
        assert len(served.feeds) == feeds + 1
        push(served, 2)
        assert numbers(second.get_without_ack(A_TRANSACTION, WAIT_MS).raw_entries) == [2]
        second.disconnect()


def put_cursor(served: Served, offset: int) -> None:
    """Move the cursor as `canal-ha cursor set` does while the node runs."""

    async def put() -> None:
        instance = served.embedded.running("example")
        assert instance is not None
        instance.cursor_replaced(1001, LogPosition(JOURNAL, offset))

    on_reactor(put)


@pytest.mark.parametrize("held", [0, 1], ids=["nothing in flight", "a batch in flight"])
def test_a_cursor_that_is_put_elsewhere_beside_a_client_is_judged_before_the_next_row(held: int) -> None:
    """The client connects again by itself. The mark of an acknowledgement never hides the rows in between."""
    with Served(config=ITEMS) as served:
        judged: list[int] = []
        client = connector(served, lambda told: judged.append(told.offset if told else -1))
        client.connect()
        push(served, 1)
        batch = client.get_without_ack(A_TRANSACTION, WAIT_MS)
        if not held:
            client.ack(batch.id, "segment 0")
            client.get_without_ack(A_TRANSACTION)
        put_cursor(served, 9000)
        if held:
            client.ack(batch.id, "segment 0")
        push(served, 9)
        found = client.get_without_ack(A_TRANSACTION, WAIT_MS)
        assert judged == [4, 9000]
        assert numbers(found.raw_entries) == [9]
        assert cursor(served) == 9000
        client.ack(found.id, "segment 1")
        client.get_without_ack(A_TRANSACTION)
        assert (client.connection, cursor(served)) == (2, end_of(9))
        client.disconnect()


def test_a_get_that_waits_while_the_cursor_is_put_elsewhere_brings_no_row_before_it_is_judged() -> None:
    """The same holds after the node lost and regained the destination, with the flushed cursor."""
    with Served(config=ITEMS) as served:
        refused = connector(served, lambda told: None if told and told.offset == 4 else refuse(told))
        refused.connect()
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(refused.get_without_ack, A_TRANSACTION, 5000)
            time.sleep(0.2)
            put_cursor(served, 9000)
            push(served, 9)
            with pytest.raises(ClientIdTaken):
                waiting.result()
        assert cursor(served) == 9000
        judged: list[int] = []
        client = connector(served, lambda told: judged.append(told.offset if told else -1))
        client.connect()
        served.lose_and_regain()
        client.get_without_ack(A_TRANSACTION)
        assert judged == [9000, 4]
        client.disconnect()


def test_a_client_that_asks_for_no_cursor_goes_on_behind_one_that_is_put_elsewhere() -> None:
    """canal's clients do not ask for the cursor, so their connections stay open."""
    with Served(config=ITEMS) as served, RawClient(served) as client:
        client.subscribe()
        assert client.refusal() == (0, "")
        push(served, 1)
        fetch(client)
        put_cursor(served, 9000)
        assert fetch(client).batch_id == -1
        push(served, 9)
        assert numbers(fetch(client).entries()) == [9]


def start_snapshot(served: Served) -> None:
    """Start a snapshot for the client, as `canal-ha snapshot start` does."""
    request = SnapshotRequest(SnapshotAction.START, ("shop.orders",))
    on_reactor(lambda: served.embedded.change_snapshot("example", 1001, request, ANYTHING))


def test_a_client_connects_again_before_a_snapshot_makes_rows_come_again() -> None:
    """The stream begins again at the cursor. Spark's driver leaves out what it has, but only on a new connection."""
    with Served(config=ITEMS) as served:
        judged: list[int] = []
        client = connector(served, lambda told: judged.append(told.offset if told else -1))
        client.connect()
        push(served, 1)
        assert numbers(client.get_without_ack(A_TRANSACTION, WAIT_MS).raw_entries) == [1]
        start_snapshot(served)
        assert not client.get_without_ack(A_TRANSACTION, WAIT_MS).raw_entries  # it begins the stream
        push(served, 1, 2)
        again = client.get_without_ack(A_TRANSACTION, WAIT_MS)
        assert (client.connection, judged, numbers(again.raw_entries)) == (2, [4, 4], [1])
        client.ack(again.id)
        rest = client.get_without_ack(A_TRANSACTION, WAIT_MS)
        assert (client.connection, numbers(rest.raw_entries)) == (2, [2])
        client.disconnect()


def test_a_client_that_asks_for_no_cursor_goes_on_when_a_snapshot_begins() -> None:
    """It gets what it has not acknowledged again, as after a rollback."""
    with Served(config=ITEMS) as served, RawClient(served) as client:
        client.subscribe()
        assert client.refusal() == (0, "")
        push(served, 1)
        fetch(client)
        start_snapshot(served)
        assert fetch(client).batch_id == -1
        push(served, 1, 2)
        assert numbers(fetch(client).entries()) == [1, 2]
