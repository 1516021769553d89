"""Two connections of one client id: which of them gets what a roll-back takes back.

A client whose network fails connects again while the node still holds its old connection. Nobody receives what the node
sends there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from canal_ha.errors import CursorReplaced
from canal_ha.wire.messages import Fetched
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from canal_ha.wire.proto import entry_protocol_pb2 as entry_pb
from tests.server.harness import Served, entries_segment, transaction
from tests.server.raw_client import EXAMPLE, RawClient
from tests.waiting import until


@contextmanager
def subscribed(served: Served) -> Iterator[RawClient]:
    """Yield a connection that has subscribed."""
    with RawClient(served) as client:
        client.subscribe()
        assert client.refusal() == (0, "")
        yield client


def push(served: Served, *numbers: int) -> None:
    """Commit transactions of three entries, of more than 1 KiB each."""
    for number in numbers:
        served.push(entries_segment(transaction(number, rows=20)))


def numbers(fetched: Fetched) -> list[int]:
    """Return the transactions of a batch."""
    offsets = [entry_pb.Entry.FromString(entry).header.logfileOffset for entry in fetched.entries()]
    return sorted({offset // 1000 - 1 for offset in offsets})


def waits(served: Served) -> None:
    """Return when a GET waits."""
    until(lambda: served.embedded.status()[0].streams[0].waiting == 1, what="a GET that waits")


def test_a_roll_back_does_not_feed_the_waiting_get_of_an_older_connection() -> None:
    """The older connection gets an empty batch, and the one that rolls back gets the rows."""
    with Served() as served, subscribed(served) as old, subscribed(served) as new:
        old.rollback()
        push(served, 1, 2)
        old.get()
        assert numbers(old.fetched()) == [1, 2]
        old.get(timeout=0, size=1)
        waits(served)
        new.rollback()
        assert old.fetched().batch_id == -1
        push(served, 3, 4)
        new.get()
        assert numbers(new.fetched()) == [1, 2, 3, 4]


def test_a_subscribe_ends_the_waiting_get_of_an_older_connection() -> None:
    """What comes next is for the connection that has just begun."""
    with Served() as served, subscribed(served) as old, RawClient(served) as new:
        old.get(timeout=0, size=1)
        waits(served)
        new.subscribe()
        assert new.refusal() == (0, "")
        assert old.fetched().batch_id == -1
        push(served, 1)
        new.get()
        assert numbers(new.fetched()) == [1]


def test_gets_sent_ahead_take_nothing_that_a_newer_connection_took_back() -> None:
    """They wait until the newer connection has all of it. Then the two share what comes, as with canal."""
    with Served() as served, subscribed(served) as old, subscribed(served) as new:
        old.rollback()
        push(served, 1, 2, 3)
        old.get()
        assert numbers(old.fetched()) == [1, 2, 3]
        for timeout in (0, -1, 300, 0):
            old.get(timeout=timeout, size=1)
        waits(served)
        new.rollback()
        assert [old.fetched().batch_id for _ in range(3)] == [-1, -1, -1]
        entries = 0
        while entries < 9:
            new.get(size=1)
            entries += len(new.fetched().entries())
        assert old.fetched().batch_id == -1
        push(served, 4)
        old.get()
        assert numbers(old.fetched()) == [4]


def test_the_log_says_that_a_newer_connection_keeps_rows_back(caplog: pytest.LogCaptureFixture) -> None:
    """A process that connects and then hangs stops the others of its client id: an operator has to find it."""
    with caplog.at_level(logging.INFO), Served() as served, subscribed(served) as old, subscribed(served) as new:
        old.rollback()
        push(served, 1)
        old.get()
        assert numbers(old.fetched()) == [1]
        new.rollback()
        for _ in range(2):  # the roll-back can end the first one
            old.get(timeout=300)
            assert old.fetched().batch_id == -1
    assert "batches.kept_back" in caplog.text


def test_a_second_roll_back_takes_back_what_the_first_one_did() -> None:
    """Canal's clients roll back, subscribe, and roll back once more, before they have got anything."""
    with Served() as served, subscribed(served) as old, RawClient(served) as new:
        old.rollback()
        push(served, 1, 2)
        old.get()
        assert numbers(old.fetched()) == [1, 2]
        new.rollback()
        new.subscribe()
        assert new.refusal() == (0, "")
        new.rollback()
        old.get()
        assert old.fetched().batch_id == -1
        new.get()
        assert numbers(new.fetched()) == [1, 2]


def test_gets_of_an_older_connection_go_on_when_the_newer_one_is_lost() -> None:
    """Nobody else asks for what the newer one has taken back."""
    with Served() as served, subscribed(served) as old:
        with subscribed(served) as new:
            old.rollback()
            push(served, 1)
            old.get()
            assert numbers(old.fetched()) == [1]
            new.rollback()
            new.subscribe()
            assert new.refusal() == (0, "")
            old.get()
            assert old.fetched().batch_id == -1
            old.get(timeout=0, size=1)
            until(lambda: bool(served.service._shared.consumers._waiting), what="a GET that is kept back")
        assert old.fetched().batch_id == -1
        old.get()
        assert numbers(old.fetched()) == [1]


def test_a_client_that_only_rolls_back_gets_what_a_lost_connection_was_given() -> None:
    """A connector without a filter sends no SUBSCRIBE."""
    with Served() as served, RawClient(served) as new:
        with subscribed(served) as old:
            push(served, 1)
            old.get()
            assert numbers(old.fetched()) == [1]
            old.get(timeout=0, size=1)
            waits(served)
            new.rollback()
            assert old.fetched().batch_id == -1
            new.get()
            assert numbers(new.fetched()) == [1]
            push(served, 2)
            old.get()
            assert numbers(old.fetched()) == [2]
            new.get()
            assert new.fetched().batch_id == -1
            new.get(timeout=0, size=1)
        first = numbers(new.fetched())
        new.get()
        assert sorted({*first, *numbers(new.fetched())}) == [1, 2]


def test_a_refused_roll_back_leaves_what_a_lost_connection_was_given_to_the_next_one() -> None:
    """A ROLLBACK of an unknown batch on the older connection changes nothing."""
    with Served() as served, subscribed(served) as old, subscribed(served) as new:
        push(served, 1)
        old.get()
        assert numbers(old.fetched()) == [1]
        old.rollback(99)
        assert old.refusal()[0] == 400
        new.get()
        assert new.fetched().batch_id == -1
        old.sock.close()
        new.get(timeout=0, size=1)
        assert numbers(new.fetched()) == [1]


def test_a_late_roll_back_of_a_lost_connection_ends_the_era_of_another() -> None:
    """The client gives up on a large batch that it does not read, rolls back there, and goes on elsewhere.

    What it got elsewhere comes again. A client that was told its cursor must not take that for what follows.
    """
    with Served() as served, subscribed(served) as old, subscribed(served) as new:
        old.rollback()
        served.push(entries_segment(transaction(1, rows=1, value="x" * 12_000_000)))
        old.get()
        until(lambda: bool(served.embedded.status()[0].streams[0].batches), what="a batch that is being sent")
        old.rollback()
        new.rollback()
        new.get()
        assert numbers(new.fetched()) == [1]
        era = served.embedded.era(EXAMPLE)
        old.sock.close()
        until(lambda: not served.embedded.status()[0].streams[0].batches, what="the late roll-back")
        assert served.embedded.era(EXAMPLE) is not era
        new.get()
        assert numbers(new.fetched()) == [1]


def test_a_late_roll_back_of_a_lost_connection_takes_no_rows_away() -> None:
    """The older connection has sent it before the newer one began. What it got then comes again when it is lost."""
    with Served() as served, subscribed(served) as old, subscribed(served) as new:
        push(served, 1)
        new.rollback()
        old.rollback()
        old.get()
        assert numbers(old.fetched()) == [1]
        new.get()
        assert new.fetched().batch_id == -1
        old.sock.close()
        new.get(timeout=0, size=1)
        assert numbers(new.fetched()) == [1]


def test_a_client_that_knows_its_cursor_shares_no_rows() -> None:
    """A pipeline would take a batch behind rows that it never got. It is refused, and begins again."""
    refusal = str(CursorReplaced(EXAMPLE.destination, EXAMPLE.client_id))
    with Served() as served, subscribed(served) as old, RawClient(served) as new:
        begin_with_cursor(new)
        push(served, 1)
        new.get()
        first = new.fetched()
        assert numbers(first) == [1]
        push(served, 2)
        old.get()
        assert numbers(old.fetched()) == [2]
        push(served, 3)
        new.ack(first.batch_id)
        new.get()
        assert refusal in new.refusal()[1]
        begin_with_cursor(new)
        new.get()
        assert numbers(new.fetched()) == [2, 3]


def test_a_client_that_knows_its_cursor_hears_that_the_node_delivers_again() -> None:
    """Its waiting GET is refused when the node takes back what a lost connection was given."""
    refusal = str(CursorReplaced(EXAMPLE.destination, EXAMPLE.client_id))
    with Served() as served, RawClient(served) as new:
        with subscribed(served) as old:
            begin_with_cursor(new)
            new.get(timeout=0, size=1000)
            waits(served)
            push(served, 1)
            old.get()
            assert numbers(old.fetched()) == [1]
        assert refusal in new.refusal()[1]
        begin_with_cursor(new)
        new.get()
        assert numbers(new.fetched()) == [1]


def test_a_client_that_knows_its_cursor_hears_of_an_ack_before_it_begins() -> None:
    """An older connection acknowledges a batch while a pipeline asks its target whether the cursor is the right one."""
    refusal = str(CursorReplaced(EXAMPLE.destination, EXAMPLE.client_id))
    with Served() as served, subscribed(served) as old, RawClient(served) as new:
        old.rollback()
        push(served, 1)
        old.get()
        batch = old.fetched()
        assert numbers(batch) == [1]
        new.write(pb.SUBSCRIPTION, pb.Sub(filter="", tell_cursor=True, **new.names))
        assert new.refusal() == (0, "")
        before = served.meta.cursor(EXAMPLE.client_id)
        old.ack(batch.batch_id)
        until(lambda: served.meta.cursor(EXAMPLE.client_id) != before, what="the ACK")
        new.subscribe()
        assert new.refusal() == (0, "")
        new.rollback()
        push(served, 2)
        new.get()
        assert refusal in new.refusal()[1]
        begin_with_cursor(new)
        for number in (2, 3):
            new.get()
            batch = new.fetched()
            assert numbers(batch) == [number]
            new.ack(batch.batch_id)
            push(served, number + 1)


def begin_with_cursor(client: RawClient) -> None:
    """Begin as a pipeline does: ask for the cursor, subscribe and roll back."""
    client.write(pb.SUBSCRIPTION, pb.Sub(filter="", tell_cursor=True, **client.names))
    assert client.refusal() == (0, "")
    client.subscribe()
    assert client.refusal() == (0, "")
    client.rollback()
