"""Attacks with requests of canal's protocol: filters, names, slots, requests sent ahead, and the victim's rows."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from canal_ha.wire.packets import client_frame
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from lab.hostile.attack import Assault, Attack
from lab.hostile.http import scrape
from lab.hostile.peer import Peer
from lab.hostile.stage import DESTINATION, ELSEWHERE, INSIDER, INSIDER_IDS, STRANGER, VICTIM_ID
from lab.process import memory_mib

LONG_NAMES, SHORT_NAMES = 40, 3000
PAGE_KIB = 64.0  # that an attack may add to the metrics
AHEAD_MIB = 300.0  # canal.client.ahead.bytes, and what the allocator adds; it keeps them for the next requests
HELD_MIB, ENDLESS_MIB = 30, 80  # sent on a connection, which may hold 32
ANSWER_S = 2.0
_FILTERS = (
    ".*" * 20 + "z",
    "(a+)+b",
    "(" * 500 + "a" + ")" * 500,
    "a{1000}{1000}",
    "((a{0,100}){0,100}){0,100}",
    r"(?<=a)b\1",
    "[" * 2000,
    "a|" * 2040,
    ",".join(r".*\..*" for _ in range(600)),
    "x" * 18_000,
    ".*" * 9_000,
    "y" * 1_200_000,
    "\x00\n\u202e",
)


@contextlib.contextmanager
def _insider(assault: Assault) -> Iterator[Peer]:
    with Peer(assault.target.port) as peer:
        error = peer.log_in(*INSIDER)
        if error:
            raise ConnectionError(error)
        yield peer


def _sub(client_id: int, filter_text: str = "", destination: str = DESTINATION) -> pb.Sub:
    return pb.Sub(destination=destination, client_id=str(client_id), filter=filter_text)


def filters(assault: Assault) -> None:
    """Expressions that take exponential time, that are nested, long or invalid."""
    slowest = 0.0
    for _ in assault.rounds(20):
        for number, text in enumerate(_FILTERS):
            with _insider(assault) as peer:
                began = time.monotonic()
                with contextlib.suppress(ConnectionError):
                    peer.ask(pb.SUBSCRIPTION, _sub(INSIDER_IDS[number], text))
                    peer.ask(
                        pb.GET,
                        pb.Get(destination=DESTINATION, client_id=str(INSIDER_IDS[number]), fetch_size=10, timeout=-1),
                    )
                    peer.ask(pb.UNSUBSCRIPTION, pb.Unsub(destination=DESTINATION, client_id=str(INSIDER_IDS[number])))
                slowest = max(slowest, time.monotonic() - began)
    assault.expect(assault.within(slowest, ANSWER_S), f"an answer took {slowest:.1f} s")
    assault.done = f"{len(_FILTERS)} filters, {assault.times(20)} times each; slowest {slowest:.2f} s"


def names(assault: Assault) -> None:
    """Names of destinations that nobody configured, of up to 4 MiB and by the thousand."""
    before = len(scrape(assault.target)) / 1024
    large, small = assault.times(LONG_NAMES), assault.times(SHORT_NAMES)
    for number in assault.rounds(LONG_NAMES):
        with _insider(assault) as peer, contextlib.suppress(OSError):
            name = chr(97 + number % 26) * (4 << 20)
            peer.ask(pb.GET, pb.Get(destination=name, client_id="1001", fetch_size=1, timeout=-1))
    with contextlib.ExitStack() as stack:
        peer = stack.enter_context(_insider(assault))
        for number in assault.rounds(SHORT_NAMES):
            try:
                peer.ask(pb.GET, pb.Get(destination=f"made-up-{number}", client_id=str(number), timeout=-1))
            except ConnectionError:
                peer = stack.enter_context(_insider(assault))
    grown = len(scrape(assault.target)) / 1024 - before
    assault.expect(grown < PAGE_KIB, f"the metrics grew by {grown:.0f} KiB")
    assault.done = f"{large} names of 4 MiB, {small} short ones; the metrics grew by {grown:.0f} KiB"


def slots(assault: Assault) -> None:
    """Subscriptions and private reads that never fetch, as many as the node allows."""
    refused: dict[str, int] = {}
    with ExitStack() as stack:
        for number in assault.rounds(200):
            peer = stack.enter_context(_insider(assault))
            try:
                peer.ask(pb.SUBSCRIPTION, _sub(INSIDER_IDS[number]))
                get = pb.Get(destination=DESTINATION, client_id=str(INSIDER_IDS[number]), fetch_size=1, timeout=-1)
                error = peer.ask(pb.GET, get)
            except ConnectionError as closed:
                error = str(closed)
            if error:
                refused[error[-60:]] = refused.get(error[-60:], 0) + 1
        with Peer(assault.target.port, source="127.0.0.3") as other:
            error = other.log_in(*STRANGER) or other.ask(pb.SUBSCRIPTION, _sub(1001, "", "other"))
            assault.expect(not error, f"another account cannot subscribe to another destination: {error}")
    assault.expect(bool(refused) or assault.scale < 1, "nothing was refused")
    assault.done = f"{assault.times(200)} client ids; refused {sum(refused.values())}"


def ahead(assault: Assault) -> None:
    """Requests sent ahead of a GET that waits for ever: on each second connection without end, else as many as it may.

    The latter hold the node's budget while it is full.
    """
    ack = client_frame(pb.CLIENTACK, pb.ClientAck(destination=DESTINATION, client_id="2900", batch_id=1))
    sent, before = 0, memory_mib(assault.target.pid)
    with ExitStack() as stack:
        for number in assault.rounds(20):
            peer = stack.enter_context(_insider(assault))
            client_id = str(INSIDER_IDS[900 + number])
            with contextlib.suppress(OSError):
                peer.ask(pb.SUBSCRIPTION, _sub(int(client_id)))
                peer.send(pb.GET, pb.Get(destination=DESTINATION, client_id=client_id, fetch_size=10**6, timeout=0))
                sent += send_on(assault, peer.sock, 1000 * ack, ENDLESS_MIB if number % 2 else HELD_MIB)
        held = memory_mib(assault.target.pid) - before
    assault.expect(held < AHEAD_MIB, f"requests sent ahead took {held:.0f} MiB")
    assault.done = f"{assault.times(20)} connections sent {sent >> 20} MiB ahead of a GET; the node held {held:.0f} MiB"


def unread(assault: Assault) -> None:
    """Requests without end, whose replies nobody reads."""
    block = 1000 * client_frame(pb.UNSUBSCRIPTION, pb.Unsub(destination=ELSEWHERE, client_id="1"))
    sent, before = 0, memory_mib(assault.target.pid)
    with ExitStack() as stack:
        for _ in assault.rounds(20):
            sent += send_on(assault, stack.enter_context(_insider(assault)).sock, block, ENDLESS_MIB)
        held = memory_mib(assault.target.pid) - before
    assault.expect(held < AHEAD_MIB, f"requests sent ahead took {held:.0f} MiB")
    assault.done = (
        f"{assault.times(20)} connections sent {sent >> 20} MiB and read no reply; the node held {held:.0f} MiB"
    )


def send_on(assault: Assault, sock: socket.socket, block: bytes, most_mib: int) -> int:
    """Send a block again and again until the node ends the connection or takes no more; return the bytes sent."""
    sent = 0
    sock.settimeout(2.0)
    with contextlib.suppress(OSError):
        while sent < most_mib << 20 and assault.goes_on():
            sock.sendall(block)
            sent += len(block)
    return sent


def theft(assault: Assault) -> None:
    """Everything that could take the victim's rows or move its cursor, by each account that has no right to it."""
    named: Mapping[str, Any] = {"destination": DESTINATION, "client_id": str(VICTIM_ID)}
    wanted = (
        (pb.SUBSCRIPTION, pb.Sub(filter=".*", **named)),
        (pb.UNSUBSCRIPTION, pb.Unsub(**named)),
        (pb.GET, pb.Get(fetch_size=1000, timeout=-1, **named)),
        (pb.CLIENTACK, pb.ClientAck(batch_id=1, **named)),
        (pb.CLIENTROLLBACK, pb.ClientRollback(batch_id=0, **named)),
        (pb.DUMP, pb.Dump(journal="binlog.000001", position=4, **named)),
    )
    tried = 0
    for _ in assault.rounds(100):
        for login in (INSIDER, STRANGER):
            for kind, body in wanted:
                with Peer(assault.target.port) as peer:
                    peer.log_in(*login)
                    try:
                        error = peer.ask(kind, body)
                    except TimeoutError:  # an ACK or a rollback that is carried out has no answer
                        error = ""
                    except ConnectionError:
                        error = "closed"
                    tried += 1
                    assault.expect(bool(error), f"{login[0]} may send {pb.PacketType.Name(kind)}")
    assault.done = f"{tried} requests for the victim's client id"


ATTACKS = (
    Attack("filters", "filters that take for ever", filters),
    Attack("names", "made-up names", names),
    Attack("slots", "streams that nobody reads", slots),
    Attack("theft", "the victim's rows and cursor", theft),
    Attack("ahead", "requests sent ahead", ahead, growth_mib=AHEAD_MIB),
    Attack("unread", "replies that nobody reads", unread, growth_mib=AHEAD_MIB),
)
