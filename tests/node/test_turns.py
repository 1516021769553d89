"""Many ready connections do not keep the reactor from its timers."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

BUSY = dedent(
    """
    import socket
    import time

    from canal_ha.node.run import READY_AT_ONCE, steady_reactor

    reactor = steady_reactor()
    from twisted.internet.protocol import Factory, Protocol

    READERS = 10 * READY_AT_ONCE
    read, timers = [], []


    class Slow(Protocol):
        def dataReceived(self, data):
            read.append(self)
            time.sleep(0.002)
            if len(set(read)) == READERS:
                reactor.stop()


    port = reactor.listenTCP(0, Factory.forProtocol(Slow), interface="127.0.0.1")
    clients = []


    def connect():
        clients.append(socket.create_connection(("127.0.0.1", port.getHost().port)))
        if len(clients) < READERS:
            reactor.callLater(0, connect)
        else:
            reactor.callLater(0.2, send)


    def send():
        for client in clients:
            client.send(b"x")
        tick()


    def tick():
        timers.append(len(read))
        reactor.callLater(0, tick)


    reactor.callLater(0, connect)
    reactor.callLater(60, reactor.stop)
    reactor.run()
    print(len(set(read)), READERS, max(after - before for before, after in zip(timers, timers[1:])), READY_AT_ONCE)
    """
)


WOKEN = dedent(
    """
    import time

    from canal_ha.node.run import steady_reactor

    reactor = steady_reactor()
    CALLS = 300
    made, timers = [], []


    def call(number):
        made.append(number)
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        if number + 1 == CALLS:
            reactor.stop()


    def tick():
        timers.append(len(made))
        reactor.callLater(0, tick)


    def wake():
        for number in range(CALLS):
            reactor.callFromThread(call, number)
        tick()


    reactor.callLater(0, wake)
    reactor.callLater(60, reactor.stop)
    reactor.run()
    print(made == list(range(CALLS)), max(after - before for before, after in zip(timers, timers[1:])))
    """
)


def test_a_timer_waits_for_a_few_streams_not_for_all() -> None:
    """Of hundreds of calls from other threads, all are made, in order, and timers run in between."""
    done = subprocess.run([sys.executable, "-c", WOKEN], capture_output=True, text=True, timeout=90, check=True)
    in_order, between_timers = done.stdout.split()
    assert in_order == "True"
    assert int(between_timers) <= 3


def test_a_timer_waits_for_a_few_connections_not_for_all() -> None:
    """Of hundreds of connections that are ready, all are read from, and timers run in between."""
    done = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, text=True, timeout=90, check=True)
    read, readers, between_timers, at_once = map(int, done.stdout.split())
    assert read == readers
    assert between_timers <= at_once


BREAKS = dedent(
    """
    import socket

    from canal_ha.node.run import steady_reactor

    reactor = steady_reactor()
    from twisted.internet.protocol import Factory, Protocol

    read, lost = [], []


    class Fragile(Protocol):
        def dataReceived(self, data):
            if data == b"break":
                raise ValueError("broken")
            read.append(data)
            done()

        def connectionLost(self, reason):
            lost.append(reason.type.__name__)
            done()


    def done():
        if len(read) == 2 and len(lost) == 2:
            reactor.stop()


    port = reactor.listenTCP(0, Factory.forProtocol(Fragile), interface="127.0.0.1")
    clients = [socket.create_connection(("127.0.0.1", port.getHost().port)) for _ in range(4)]


    def send():
        for client, data in zip(clients, (b"one", b"break", b"two")):
            client.send(data)
        clients[3].close()


    reactor.callLater(0.2, send)
    reactor.callLater(60, reactor.stop)
    reactor.run()
    print(sorted(read) == [b"one", b"two"], *sorted(lost[:2]))
    """
)


def test_a_connection_that_breaks_takes_no_turn_from_others() -> None:
    """One whose bytes lead to an error ends with that error, one that its peer closes ends too, and others go on."""
    done = subprocess.run([sys.executable, "-c", BREAKS], capture_output=True, text=True, timeout=90, check=True)
    assert done.stdout.split() == ["True", "ConnectionDone", "ValueError"]
