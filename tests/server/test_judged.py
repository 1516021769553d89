"""Connectors with a judge, over TCP: a refused query leaves no trace, and no row comes before the cursor is judged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from canal_ha.client.cluster import ClusterConnector
from canal_ha.config.model import BatchMode
from canal_ha.errors import ClientIdTaken
from canal_ha.model.position import LogPosition
from tests.server.harness import LOOPBACK, Served
from tests.server.test_regained import A_TRANSACTION, WAIT_MS, cursor, end_of, numbers, push

ITEMS = {"batch_mode": BatchMode.ITEMSIZE}
Judge = Callable[[LogPosition | None], None]


def connector(served: Served, judge: Judge, filter: str = "") -> ClusterConnector:
    """As Spark's driver makes it."""
    return ClusterConnector(
        [f"{LOOPBACK}:{served.port}"],
        "example",
        filter=filter,
        retry_interval_ms=100,
        rollback_on_disconnect=True,
        judge=judge,
    )


def refuse(told: LogPosition | None) -> None:
    """The judge of a query whose client id is another one's."""
    raise ClientIdTaken("another spool has this client id")


@pytest.mark.parametrize("filter", [r"shop\.orders", ""], ids=["another filter", "no filter"])
def test_a_refused_query_changes_no_filter_and_takes_back_no_batch(filter: str) -> None:
    """The query that was there keeps its filter, also the durable one, its feed, its batch and its connection."""
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
