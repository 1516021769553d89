"""kazoo's handler with few calls of the system."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from canal_ha.zookeeper.few_calls import WRITE_BYTES, AtOnce, Buffered, FewCalls
from canal_ha.zookeeper.operations import SetData
from lab import ZooKeeper
from tests.zookeeper.stage import QueueStage


@pytest.fixture
def pair() -> Iterator[tuple[Buffered, socket.socket]]:
    """Yield a connection that does not block, and its other end."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    yield Buffered(ours), theirs
    ours.close()
    theirs.close()


def test_requests_that_wait_together_leave_before_the_thread_waits(pair: tuple[Buffered, socket.socket]) -> None:
    """Nothing leaves with each of them."""
    ours, theirs = pair
    handler = FewCalls()
    for message in (b"one", b"two", b"three"):
        assert handler.select([], [ours], [], 1.0) == ([], [ours], [])
        ours.send(message)
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(100)
    assert handler.select([ours], [], [], 0.0) == ([], [], [])
    assert theirs.recv(100) == b"onetwothree"


def test_answers_that_came_together_are_read_without_another_look(pair: tuple[Buffered, socket.socket]) -> None:
    """A look at the connection alone would wait for further bytes."""
    ours, theirs = pair
    handler = FewCalls()
    theirs.sendall(b"onetwo")
    assert handler.select([ours], [], [], 1.0)[0] == [ours]
    assert ours.recv(3) == b"one"
    assert handler.select([ours], [], [], 0.0)[0] == [ours]
    assert ours.recv(100) == b"two"
    assert handler.select([ours], [], [], 0.0)[0] == []
    theirs.close()
    assert handler.select([ours], [], [], 1.0)[0] == [ours]
    assert ours.recv(100) == b""


def test_a_peer_that_reads_nothing_stops_the_writer(pair: tuple[Buffered, socket.socket]) -> None:
    """Then the connection is given up after its time-out, instead of taking more and more memory."""
    ours, theirs = pair
    handler, sent = FewCalls(), 0
    while handler.select([], [ours], [], 0.0)[1]:
        sent += ours.send(bytes(WRITE_BYTES))
    assert sent < 100 * WRITE_BYTES
    while sent:
        sent -= len(theirs.recv(WRITE_BYTES))
        handler.select([ours], [], [], 0.0)
    assert handler.select([], [ours], [], 0.0)[1] == [ours]


def test_a_connection_that_takes_waiting_bytes_is_not_taken_for_a_silent_one(
    pair: tuple[Buffered, socket.socket],
) -> None:
    """kazoo gives a connection up if nothing can be read after its time-out, and believes what `select` says."""
    ours, theirs = pair
    sent = ours.send(bytes(100 * WRITE_BYTES))  # more than the system takes at once

    def answer_last() -> None:
        left = sent
        while left:
            left -= len(theirs.recv(WRITE_BYTES))
        theirs.sendall(b"answer")

    answering = threading.Thread(target=answer_last)
    answering.start()
    assert FewCalls().select([ours], [], [], 30.0) == ([ours], [], [])
    assert ours.recv(100) == b"answer"
    answering.join()


def test_thousands_of_requests_do_not_block_who_sends_them() -> None:
    """kazoo writes a byte for each, and a socket takes some hundred."""
    handler = FewCalls()
    reader, writer = handler.create_socket_pair()
    for _ in range(10_000):
        writer.send(b"\0")
    for _ in range(10_000):
        assert handler.select([reader], [], [], 0.0)[0] == [reader]
        reader.recv(1)
    assert handler.select([reader], [], [], 0.0)[0] == []
    reader.close()
    writer.close()


def test_an_answer_that_cannot_be_passed_on_keeps_the_others() -> None:
    """It runs on kazoo's thread, which must not end."""
    result, found = FewCalls().async_result(), []

    def breaks(answer: object) -> None:
        raise LookupError(answer)

    result.rawlink(AtOnce(breaks))
    result.rawlink(AtOnce(lambda answer: found.append(answer.get(block=False))))
    result.set("answer")
    assert found == ["answer"]


@pytest.mark.real
def test_answers_and_watches_keep_the_order_of_zookeeper(zookeeper: ZooKeeper) -> None:
    """Whoever has read a newer state has heard of the change before it."""
    stage = QueueStage(zookeeper.hosts)
    watcher, writer = stage.session(), stage.session()
    stage.do(lambda: watcher.ensure("/a"))
    heard: list[str] = []
    stage.do(lambda: watcher.get("/a", lambda deleted: heard.append("watch")))
    stage.do(lambda: writer.transaction([SetData("/a", b"new")]))
    while True:
        found = stage.do(lambda: watcher.get("/a"))
        if found is not None and found.data == b"new":
            break
    assert heard == ["watch"]
    stage.close()
