"""A destination that this node loses and regains, or a client that subscribes again, while connections stay open.

Earlier batch ids are void then. They must not equal the ids of later batches, which hold other rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.connector import SimpleConnector
from canal_ha.config.model import BatchMode
from canal_ha.errors import ServerRefused
from canal_ha.wire.messages import Fetched
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from canal_ha.wire.proto import entry_protocol_pb2 as entry_pb
from tests.server.harness import LOOPBACK, Served, entries_segment, transaction
from tests.server.raw_client import RawClient

A_TRANSACTION = 3  # entries
ITEMS = {"batch_mode": BatchMode.ITEMSIZE}
WAIT_MS = 200


def push(served: Served, *numbers: int) -> None:
    """Push transactions with these numbers to every open stream."""
    for number in numbers:
        served.push(entries_segment(transaction(number)))


def numbers(bodies: Sequence[bytes]) -> list[int]:
    """Return the numbers of the transactions that end in a batch."""
    entries = [entry_pb.Entry.FromString(body) for body in bodies]
    return [entry.header.logfileOffset // 1000 - 1 for entry in entries if entry.entryType == entry_pb.TRANSACTIONEND]


def fetch(client: RawClient, transactions: int = 100) -> Fetched:
    """Return the result of a GET that does not wait."""
    client.get(size=transactions * A_TRANSACTION)
    return client.fetched()


def end_of(number: int) -> int:
    """Return the offset at which a transaction ends."""
    return 1900 + number * 1000


def cursor(served: Served) -> int:
    """Return the offset of the client's cursor."""
    position = served.meta.cursor(1001)
    assert position is not None
    return position.offset


def test_an_old_ack_moves_no_cursor_after_the_same_node_claims_again() -> None:
    """The connection stays open, so the client acknowledges its old batches. Its ACKs and ROLLBACKs are refused.

    A ROLLBACK of everything then brings all rows.
    """
    with Served(config=ITEMS) as served, RawClient(served) as client:
        client.subscribe()
        assert client.refusal() == (0, "")
        push(served, 1, 2)
        old = [fetch(client, 1), fetch(client, 1)]
        assert [(batch.batch_id, numbers(batch.entries())) for batch in old] == [(1, [1]), (2, [2])]
        served.lose_and_regain()
        began = cursor(served)
        assert fetch(client).batch_id == -1  # opens the stream
        push(served, 1, 2, 3)
        new = fetch(client)
        assert (new.batch_id, numbers(new.entries())) == (3, [1, 2, 3])
        for batch in old:
            client.ack(batch.batch_id)
            code, text = client.refusal()
            assert code == 400
            assert f"ack error , clientId:1001 batchId:{batch.batch_id} is not exist , please check" in text
            client.rollback(batch.batch_id)
            code, text = client.refusal()
            assert f"rollback error, clientId:1001 batchId:{batch.batch_id} is not exist , please check" in text
        assert cursor(served) == began
        client.rollback()
        again = fetch(client)
        assert (again.batch_id, numbers(again.entries())) == (4, [1, 2, 3])
        client.ack(again.batch_id)
        assert fetch(client).batch_id == -1
        assert cursor(served) == end_of(3)


@pytest.mark.parametrize("same", [True, False], ids=["the same connection", "another connection"])
def test_an_old_ack_moves_no_cursor_after_unsubscribe_and_subscribe(same: bool) -> None:
    """A batch is in flight at UNSUBSCRIBE. Batches of the new subscription have new ids."""
    with Served(config=ITEMS) as served, RawClient(served) as first, RawClient(served) as second:
        first.subscribe()
        assert first.refusal() == (0, "")
        push(served, 1)
        assert fetch(first, 1).batch_id == 1
        client = first if same else second
        client.write(pb.UNSUBSCRIPTION, pb.Unsub(**client.names))
        assert client.refusal() == (0, "")
        client.subscribe()
        assert client.refusal() == (0, "")
        push(served, 5, 6)
        began = cursor(served)
        new = fetch(client)
        assert (new.batch_id, numbers(new.entries())) == (2, [5, 6])
        first.ack(1)
        assert "batchId:1 is not exist" in first.refusal()[1]
        assert cursor(served) == began
        client.ack(new.batch_id)
        assert fetch(client).batch_id == -1
        assert cursor(served) == end_of(6)


def test_an_old_ack_closes_no_batch_of_a_private_read() -> None:
    """A private read gets ids that no client's stream and no earlier read of the process has."""
    with Served(config=ITEMS) as served, RawClient(served) as client:
        client.subscribe()
        assert client.refusal() == (0, "")
        push(served, 1)
        of_stream = fetch(client)
        reads = []
        for _ in range(2):
            client.write(pb.DUMP, pb.Dump(journal="mysql-bin.000001", position=4, **client.names))
            assert client.refusal() == (0, "")
            served.push(entries_segment(transaction(1)))
            served.push(entries_segment(transaction(2)))
            reads.append(fetch(client))
            assert numbers(reads[-1].entries()) == [1, 2]
        ids = [of_stream.batch_id, *(read.batch_id for read in reads)]
        assert len(set(ids)) == 3
        for old in ids[:2]:
            client.ack(old)
            assert f"batchId:{old} is not exist" in client.refusal()[1]
        client.rollback()
        assert numbers(fetch(client).entries()) == [1, 2]


@pytest.mark.parametrize("options", [{}, {"lazy_acks": True}, {"read_ahead": True}], ids=["plain", "lazy", "ahead"])
def test_a_simple_client_gets_every_row_after_the_same_node_claims_again(options: dict[str, bool]) -> None:
    """The client acknowledges two batches late. After the refusal it connects again, and its batches come again."""
    with Served(config=ITEMS) as served:
        client = SimpleConnector(LOOPBACK, served.port, "example", filter="", **options)  # type: ignore[arg-type]  # flags
        client.connect()
        push(served, 1, 2)
        held = [client.get_without_ack(A_TRANSACTION, WAIT_MS) for _ in range(2)]
        served.lose_and_regain()
        worked_off: set[int] = set()
        refusals: list[str] = []
        pushed = False
        while len(worked_off) < 4 or held:
            try:
                client.connect()
                message = client.get_without_ack(100, WAIT_MS)
                held += [message] if message else []
                if len(served.feeds) > 1 and not pushed:
                    pushed = True
                    push(served, 1, 2, 3, 4)
                if len(held) > 2 or (held and refusals):
                    worked_off.update(numbers(held[0].raw_entries))
                    client.ack(held.pop(0).id)
            except ServerRefused as error:
                if not client.connected:
                    refusals.append(str(error))
                    held.clear()
            assert {number for number in range(1, 5) if end_of(number) <= cursor(served)} <= worked_off
        client.get_without_ack(100)
        client.disconnect()
        assert [" is not exist" in text for text in refusals] == [True]
        assert cursor(served) == end_of(4)


def test_a_cluster_client_gets_every_row_after_the_same_node_claims_again() -> None:
    """The client connects again by itself after a refused acknowledgement; its caller only sees repeated rows."""
    with Served(config=ITEMS) as served:
        client = ClusterConnector([f"{LOOPBACK}:{served.port}"], "example", filter="", retry_interval_ms=100)
        with client:
            push(served, 1, 2)
            old = [client.get_without_ack(A_TRANSACTION, WAIT_MS) for _ in range(2)]
            served.lose_and_regain()
            began = cursor(served)
            client.get_without_ack(100)
            push(served, 1, 2, 3)
            new = client.get_without_ack(100, WAIT_MS)
            assert numbers(new.raw_entries) == [1, 2, 3]
            client.ack(old[0].id)
            again = client.get_without_ack(100, WAIT_MS)
            assert cursor(served) == began
            assert client.connection == 2
            assert numbers(again.raw_entries) == [1, 2, 3]
            client.ack(old[1].id)
            client.ack(again.id)
            client.get_without_ack(100)
        assert cursor(served) == end_of(3)
