"""SimpleConnector against our own server: canal's semantics, lost connections, interrupts."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.config.model import BatchMode
from canal_ha.errors import ConnectionLost, LocalProtocolError, RemoteProtocolError, ServerRefused
from canal_ha.wire import packets, scramble
from tests.server.harness import LOOPBACK, Served, entries_segment, transaction
from tests.waiting import until

OFFSETS = [1000, 1100, 1900]  # of a transaction's entries


@pytest.fixture
def served() -> Iterator[Served]:
    with Served() as running:
        yield running


@pytest.fixture
def by_entries() -> Iterator[Served]:
    """Yield a server whose batch sizes count entries. A transaction has three."""
    with Served(config={"batch_mode": BatchMode.ITEMSIZE}) as running:
        yield running


def client_of(served: Served, **options: object) -> SimpleConnector:
    return SimpleConnector(LOOPBACK, served.port, "example", **options)  # type: ignore[arg-type]  # valid options


def test_batches_are_acknowledged_in_order_and_rolled_back_together(served: Served) -> None:
    """Two batches in flight come again as one batch after a roll-back; its ACK moves the cursor."""
    with client_of(served) as client:
        client.subscribe()
        assert not client.get_without_ack(100)
        batches = []
        for number in range(2):
            served.push(entries_segment(transaction(number)))
            batches.append(client.get_without_ack(100))
        assert [batch.id for batch in batches] == [1, 2]
        assert [entry.header.logfileOffset for entry in batches[0].entries] == OFFSETS
        client.rollback()
        again = client.get_without_ack(100)
        assert again.raw_entries == batches[0].raw_entries + batches[1].raw_entries
        assert bytes(again.frames) == bytes(batches[0].frames) + bytes(batches[1].frames)
        client.ack(again.id)
        assert not client.get(100)
        assert str(served.meta.cursor(1001)) == "mysql-bin.000001:2900"


def test_connecting_takes_back_what_the_last_connection_left(served: Served) -> None:
    """canal calls this rollbackOnConnect. Without it the next batch follows the one in flight."""
    with client_of(served) as client:
        client.subscribe()
        served.push(entries_segment(transaction(0)))
        first = client.get_without_ack(100)
    with client_of(served) as client:
        client.subscribe()
        assert client.get_without_ack(100).raw_entries == first.raw_entries
        # if the server notices the end of the first connection after that of this one, the batch comes again
        until(lambda: served.service._shared.load.connections == 1, what="the end of the first connection")
    until(lambda: not served.service._shared.load.connections, what="the end of the second connection")
    with client_of(served, client_id=1002) as other:  # meanwhile the reactor finishes what the last one sent
        other.subscribe()
    with client_of(served, rollback_on_connect=False) as client:
        client.subscribe()
        assert not client.get_without_ack(100)
        served.push(entries_segment(transaction(1)))
        assert client.get_without_ack(100).entries[0].header.logfileOffset == 2000


def test_reading_ahead_hands_out_the_same_batches(by_entries: Served) -> None:
    """Each batch comes once and in order. Only delivered batches are acknowledged; a roll-back covers all batches."""
    with client_of(by_entries, read_ahead=True) as client:
        client.subscribe()
        assert not client.get_without_ack(3)
        for number in range(4):
            by_entries.push(entries_segment(transaction(number)))
        first = client.get_without_ack(3)
        assert client.get_without_ack(3).id == first.id + 1
        client.rollback(first.id)
        assert client.get_without_ack(3).raw_entries == first.raw_entries
        client.rollback()
        again = client.get_without_ack(3)
        assert again.raw_entries == first.raw_entries
        client.ack(again.id)
        client.subscribe()
        assert str(by_entries.meta.cursor(1001)) == "mysql-bin.000001:1900"
        offsets = [entry.header.logfileOffset for _ in range(3) for entry in client.get(3).entries]
        assert offsets == [1000 * number + offset for number in (1, 2, 3) for offset in OFFSETS]
        assert not client.get(3)
        by_entries.push(entries_segment(transaction(4)))
        assert client.get(3, 10_000).entries[0].header.logfileOffset == 5000


def test_what_was_read_ahead_comes_again_to_the_next_connection(by_entries: Served) -> None:
    """The first connection did not deliver these batches to its caller."""
    with client_of(by_entries, read_ahead=True) as client:
        client.subscribe()
        for number in range(3):
            by_entries.push(entries_segment(transaction(number)))
        client.get(3)
    until(lambda: str(by_entries.meta.cursor(1001)) == "mysql-bin.000001:1900", what="the cursor")
    with client_of(by_entries, read_ahead=True) as client:
        client.subscribe()
        assert client.get_without_ack(100).entries[0].header.logfileOffset == 2000


def test_reading_ahead_waits_for_no_acknowledgement_without_limit(by_entries: Served) -> None:
    """A GET that waits until its size is filled is not sent ahead, because the ACK would wait behind it."""
    with client_of(by_entries, read_ahead=True) as client:
        client.subscribe()
        by_entries.push(entries_segment(transaction(0)))
        client.ack(client.get_without_ack(3, 0).id)
        assert not client.get_without_ack(3)
        assert str(by_entries.meta.cursor(1001)) == "mysql-bin.000001:1900"


def test_leaving_does_not_wait_for_what_was_asked_for_ahead(by_entries: Served) -> None:
    """The roll-back is sent after a GET that waits, and takes effect."""
    with client_of(by_entries) as other:
        other.subscribe()
    began = time.monotonic()
    with client_of(by_entries, read_ahead=True, rollback_on_disconnect=True) as client:
        client.subscribe()
        by_entries.push(entries_segment(transaction(0)))
        first = client.get_without_ack(3, 30_000)
    assert time.monotonic() - began < 15
    with client_of(by_entries, rollback_on_connect=False) as client:
        client.subscribe()
        assert client.get_without_ack(3, 10_000).raw_entries == first.raw_entries


def test_reading_ahead_needs_a_roll_back_on_connecting(by_entries: Served) -> None:
    """Without a roll-back, a batch on its way over a broken connection would stay in flight for ever."""
    with pytest.raises(ValueError, match="rollback_on_connect"):
        client_of(by_entries, read_ahead=True, rollback_on_connect=False)


def test_unsubscribing_forgets_what_was_read_ahead(by_entries: Served) -> None:
    """The caller also gets the refusal of a GET that was sent ahead."""
    with client_of(by_entries, read_ahead=True) as client:
        client.subscribe()
        for number in range(3):
            by_entries.push(entries_segment(transaction(number)))
        client.get(3)
        client.unsubscribe()
        with pytest.raises(ServerRefused, match="should subscribe first"):
            client.get_without_ack(3)


def test_a_preset_filter_subscribes_on_connecting(served: Served) -> None:
    """connect() alone makes a client with that filter."""
    with client_of(served, filter=r"shop\..*") as client:
        assert not client.get_without_ack(100)
    assert served.meta.clients()[0].filter == r"shop\..*"


def test_get_acknowledges_by_itself(served: Served) -> None:
    """No batch stays in flight, and the server reads the last ACK although the client leaves."""
    with client_of(served) as client:
        client.subscribe()
        served.push(entries_segment(transaction(0)))
        assert len(client.get(100).entries) == 3
    until(lambda: str(served.meta.cursor(1001)) == "mysql-bin.000001:1900", what="the cursor")


def test_unsubscribing_forgets_the_cursor(served: Served) -> None:
    """A later GET is refused. The connection stays open, because no ACK can have caused the error."""
    with client_of(served) as client:
        client.subscribe()
        client.unsubscribe()
        with pytest.raises(ServerRefused, match="should subscribe first"):
            client.get_without_ack(1)
        assert client.connected
        client.subscribe()
        assert not client.get(1)


def test_an_error_that_may_be_an_acks_closes_the_connection(served: Served) -> None:
    """The next request would read the reply of the GET, so the client must connect again."""
    client = client_of(served)
    client.connect()
    client.subscribe()
    client.ack(99)
    with pytest.raises(ServerRefused, match="batchId:99 is not exist"):
        client.get_without_ack(100, 50)
    assert not client.connected
    with pytest.raises(LocalProtocolError):
        client.get_without_ack(100)
    client.connect()
    client.subscribe()
    assert not client.get(100)
    client.disconnect()
    client.disconnect()


def test_an_eager_get_waits_for_anything(served: Served) -> None:
    """A plain GET waits until its size is filled or its time is over; an eager GET returns the entries that exist."""
    with client_of(served) as client:
        client.subscribe()
        served.push(entries_segment(transaction(1)))
        began = time.monotonic()
        assert client.get_without_ack(1000, timeout_ms=30_000, eager=True).id == 1
        assert time.monotonic() - began < 10
        assert not client.get_without_ack(1000, timeout_ms=50, eager=True)


def test_a_waiting_get_is_interrupted_from_another_thread(served: Served) -> None:
    """The GET raises at once; an ACK written before it still reaches the server."""
    with client_of(served) as client:
        client.subscribe()
        served.push(entries_segment(transaction(0)))
        client.ack(client.get_without_ack(100).id)
        threading.Timer(0.1, client.interrupt).start()
        began = time.monotonic()
        with pytest.raises(ConnectionLost, match="interrupted"):
            client.get_without_ack(100, 0)
        assert time.monotonic() - began < 1
        assert not client.connected
    until(lambda: str(served.meta.cursor(1001)) == "mysql-bin.000001:1900", what="the cursor")


def test_authentication() -> None:
    """The right password is accepted; a wrong one is refused with canal's text, and the connection is closed."""
    secret = scramble.secret_of("geheim").hex()
    with Served(user="canal", passwd=secret) as served:
        with client_of(served, username="canal", password="geheim") as client:
            client.subscribe()
        for password in ("falsch", None):
            bad = client_of(served, username="canal", password=password)
            with pytest.raises(ServerRefused, match="doing authentication: auth failed for user:canal"):
                bad.connect()
            assert not bad.connected


def test_a_server_that_stops_is_noticed(served: Served) -> None:
    """A waiting GET raises ConnectionLost, and so does the next connect()."""
    client = client_of(served)
    client.connect()
    client.subscribe()
    threading.Timer(0.1, served.__exit__).start()
    with pytest.raises(ConnectionLost):
        client.get_without_ack(100, 0)
    until(lambda: not client.connected and served.service.counters.connections == 0, what="the end")
    time.sleep(0.1)
    with pytest.raises(ConnectionLost, match="cannot connect"):
        client_of(served).connect()
    served.__enter__()


class Mute:
    """A server that says `words` and then nothing."""

    def __init__(self, words: bytes) -> None:
        self._listening = socket.create_server((LOOPBACK, 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, args=(words,), daemon=True)
        self._thread.start()

    def _serve(self, words: bytes) -> None:
        peer, _ = self._listening.accept()
        peer.sendall(words)
        with suppress(ConnectionResetError):  # the client left bytes unread
            while peer.recv(1000):
                continue
        peer.close()
        self._listening.close()


def test_a_server_that_does_not_answer_is_given_up() -> None:
    """The call ends after the socket timeout: a frozen server is treated like a lost one."""
    mute = Mute(packets.handshake(b"12345678"))
    began = time.monotonic()
    with pytest.raises(ConnectionLost, match="did not answer before the timeout"):
        SimpleConnector(LOOPBACK, mute.port, "example", so_timeout_ms=200).connect()
    assert 0.15 < time.monotonic() - began < 2


def test_a_server_of_another_kind_is_told_apart() -> None:
    """The greeting of MySQL is a protocol error, and the client does not hang."""
    mysql = Mute(b"\x4a\x00\x00\x00\x0a9.7.4\x00" + bytes(70))
    with pytest.raises(RemoteProtocolError):
        SimpleConnector(LOOPBACK, mysql.port, "example", so_timeout_ms=2000, max_frame_bytes=2**20).connect()
