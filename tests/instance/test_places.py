"""A destination without room refuses before anything becomes durable, and nobody takes the places of all others."""

from __future__ import annotations

from typing import Any

import pytest

from canal_ha.errors import CanalError, QuotaReached
from canal_ha.instance.feed_pace import BEGUN_MOST
from canal_ha.instance.places import Places, Quota
from canal_ha.instance.private_read import BinlogRead
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.place import Place
from tests.server.harness import Served, on_reactor
from tests.waiting import until


def read(served: Served, client_id: int = 1, account: str = "", holder: str = "") -> Any:
    identity = ClientIdentity("example", client_id, account=account)
    return on_reactor(lambda: served.embedded.read_from(identity, Place(end="latest"), None, holder=holder))


def subscribe(served: Served, client_id: int, account: str = "") -> None:
    on_reactor(lambda: served.embedded.subscribe(ClientIdentity("example", client_id, account=account)))


def test_private_reads_lock_out_no_subscriber() -> None:
    """When reads have taken all of their places, another one is refused, and a new client id subscribes."""
    with Served(config={"stream_max": 1, "read_max": 2}) as served:
        reads = [read(served) for _ in range(2)]
        with pytest.raises(QuotaReached, match=r"2 private reads already \(canal\.instance\.read\.max\)"):
            read(served)
        subscribe(served, 1001)
        reads[0].close("enough")
        read(served)


def test_reads_of_one_address_delay_no_reads_of_another() -> None:
    """Without accounts, each address has its own pace."""
    with Served() as served:
        for _ in range(BEGUN_MOST):
            read(served, holder="10.0.0.9").close("enough")
        opened = len(served.feeds)
        assert opened == BEGUN_MOST
        read(served, holder="10.0.0.9").close("enough")
        assert not served.feeds[-1].started
        read(served, holder="10.0.0.10").close("enough")
        assert served.feeds[-1].started


def test_a_subscription_that_finds_no_room_leaves_no_cursor_behind() -> None:
    """SUBSCRIBE of a new client id is refused, and a new start knows no such client. An open stream keeps its place."""
    with Served(config={"stream_max": 1}) as served:
        subscribe(served, 1001)
        with pytest.raises(QuotaReached, match=r"1 open streams already \(canal\.instance\.stream\.max\)"):
            subscribe(served, 1002)
        assert [client.client_id for client in served.meta.clients()] == [1001]
        assert [*served.durable().clients] == [1001]
        subscribe(served, 1001)


def test_one_account_does_not_take_the_places_of_another() -> None:
    """Streams and reads of one account have their own limits; without accounts there are none."""
    with Served(config={"stream_account_max": 1, "read_account_max": 1}) as served:
        subscribe(served, 1, "greedy")
        with pytest.raises(QuotaReached, match=r"open streams of account greedy already .*stream\.account\.max"):
            subscribe(served, 2, "greedy")
        subscribe(served, 1, "greedy")
        subscribe(served, 3, "modest")
        read(served, 1, "greedy")
        with pytest.raises(QuotaReached, match=r"private reads of account greedy already .*read\.account\.max"):
            read(served, 1, "greedy")
        read(served, 1, "modest")
        for client_id in (4, 5):
            subscribe(served, client_id)
            read(served, client_id)


def test_client_ids_without_end_fill_no_store() -> None:
    """A new client id beyond the limit is refused and stored nowhere; the ids that exist subscribe again."""
    with Served(config={"clients_max": 2}) as served:
        for client_id in (1, 2):
            subscribe(served, client_id)
        with pytest.raises(QuotaReached, match=r"2 client ids already \(canal\.instance\.clients\.max\)"):
            subscribe(served, 3)
        assert [*served.durable().clients] == [1, 2]
        subscribe(served, 1)
        on_reactor(lambda: served.embedded.unsubscribe(ClientIdentity("example", 1)))
        subscribe(served, 3)


def test_one_account_does_not_take_all_client_ids() -> None:
    """Another account begins a new one, and without accounts there is no such limit. A known id is never refused."""
    with Served(config={"clients_max": 5, "clients_account_max": 2}) as served:
        for client_id in (1, 2):
            subscribe(served, client_id, "greedy")
        with pytest.raises(QuotaReached, match=r"client ids of account greedy already .*clients\.account\.max"):
            subscribe(served, 3, "greedy")
        assert [*served.durable().clients] == [1, 2]
        subscribe(served, 3, "modest")
        for client_id in (4, 5):
            subscribe(served, client_id)
        subscribe(served, 3, "greedy")  # it exists


def test_a_silent_private_read_ends() -> None:
    """Its place is free again, and the next request says why. A read with a waiting GET stays."""
    with Served(config={"read_max": 1, "read_idle_s": 0.2}) as served:
        silent: BinlogRead = read(served)
        until(lambda: not served.embedded.running("example")._reads, what="the end of the read")  # type: ignore[union-attr]
        with pytest.raises(CanalError, match=r"this read is over: no GET for 0\.2 s \(canal\.instance\.read\.idle\)"):
            on_reactor(lambda: silent.get(GetRequest(1, 0.0)))
        busy: BinlogRead = read(served)
        on_reactor(lambda: busy.get(GetRequest(1, 2500.0)))


def test_requests_under_way_keep_their_places() -> None:
    """Requests for one key share a place, which is free again after the last of them."""
    places = Places("example", dict, Quota("r", "things", "key", 2), Quota("a", "things", "account key", 1))
    with places.reserved(1, "x"):
        with places.reserved(1, "x"), pytest.raises(QuotaReached, match="of account x already"):
            places.check(2, "x")
        with places.reserved(2, "y"), pytest.raises(QuotaReached, match="2 things already"):
            places.check(3)
        with pytest.raises(QuotaReached, match="of account x"):
            places.check(2, "x")
    places.check(2, "x")
