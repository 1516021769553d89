"""Attack with frames that are damaged at random, before and after the login. The same seed damages in the same way.

Several connections send at once, because a damaged GET may wait for rows. A frame counts as sent when the node has
surely read it: it answered the frame, or a later one.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

from google.protobuf.message import Message

from canal_ha.wire.framing import HEADER_BYTES
from canal_ha.wire.packets import client_frame
from canal_ha.wire.proto import admin_protocol_pb2 as admin_pb
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from lab.hostile.attack import Assault, Attack
from lab.hostile.peer import Peer
from lab.hostile.stage import DESTINATION, ELSEWHERE, INSIDER, INSIDER_IDS

FRAMES = 1_000_000
BEFORE_LOGIN = 0.02  # part of them; a connection without a login has three
SENDERS = 8
BURST = 100
WAIT_S = 0.25  # for an answer: a GET may wait for ever
_LAST = client_frame(pb.UNSUBSCRIPTION, pb.Unsub(destination=ELSEWHERE, client_id="1"))
"""Is always refused with the account's missing right, which shows that everything before it was read."""
_SEEN = b"has no right on destination:" + ELSEWHERE.encode()

Whole = Sequence[pb.Packet | admin_pb.Packet]
"""The requests that are damaged, of one protocol."""


def _whole(client_id: int) -> Whole:
    """Return those of a client."""
    named: dict[str, Any] = {"destination": DESTINATION, "client_id": str(client_id)}
    requests: Sequence[tuple[pb.PacketType.ValueType, Message]] = (
        (pb.SUBSCRIPTION, pb.Sub(filter=r"none\.none", **named)),
        (pb.UNSUBSCRIPTION, pb.Unsub(**named)),
        (pb.GET, pb.Get(fetch_size=1, timeout=-1, unit=2, **named)),
        (pb.CLIENTACK, pb.ClientAck(batch_id=7, **named)),
        (pb.CLIENTROLLBACK, pb.ClientRollback(batch_id=7, **named)),
        (pb.DUMP, pb.Dump(journal="binlog.000001", position=4, **named)),
        (pb.CLIENTAUTHENTICATION, pb.ClientAuth(username="a", password=b"b" * 20, net_read_timeout=1)),
    )
    return [pb.Packet(type=kind, version=1, body=body.SerializeToString()) for kind, body in requests]


def damaged(whole: Whole, chance: random.Random) -> bytes:
    """Return one of the requests as a frame with damaged bytes.

    They are mostly in the request's body, now and then in the envelope or the length, after which the node ends the
    connection.
    """
    request = deepcopy(chance.choice(whole))
    request.body = _damage(request.body, chance)
    packet = request.SerializeToString()
    if chance.random() < 0.005:
        packet = _damage(packet, chance)
    length = len(packet)
    if chance.random() < 0.005:
        length = chance.choice((-1, 0, 2**31 - 1, length + 1, length - 1, 1 << 24, -(2**31)))
    return length.to_bytes(4, "big", signed=True) + packet


def _damage(whole: bytes, chance: random.Random) -> bytes:
    body = bytearray(whole)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(body) + 1)
        match chance.randrange(5):
            case 0 if at < len(body):
                body[at] ^= 1 << chance.randrange(8)
            case 1:
                del body[at : at + chance.randint(1, 8)]
            case 2:
                body[at:at] = chance.randbytes(chance.randint(1, 16))
            case 3:
                body[at:at] = body[at : at + chance.randint(1, 32)]
            case _:
                body[at : at + 10] = b"\xff" * 10  # a number that never ends
    return bytes(body)


def frames(assault: Assault) -> None:
    """Damaged frames in bursts, on several connections."""
    share = max(1, assault.times(FRAMES) // SENDERS)
    with ThreadPoolExecutor(SENDERS) as pool:
        tallies = list(pool.map(lambda number: _send(assault, number, share), range(SENDERS)))
    _unsubscribe(assault)
    before, after, connections = map(sum, zip(*tallies, strict=True))
    assault.done = f"{before} damaged frames before and {after} after a login, on {connections} connections"


def _send(assault: Assault, number: int, share: int) -> tuple[int, int, int]:
    """Send damaged frames as one of the senders.

    number: of the sender.
    share: frames to send.
    Returns how many the node has read before and after a login, and how many connections that took.
    """
    chance = random.Random(f"{assault.seed}/{number}")
    whole = _whole(INSIDER_IDS[-1 - number])
    before = after = connections = 0
    while before + after < share and assault.goes_on():
        with Peer(assault.target.port, source=f"127.0.0.{chance.randint(2, 250)}") as peer:
            connections += 1
            if before < share * BEFORE_LOGIN:
                peer.seed()
                before += burst(peer.sock, whole, chance, _LAST)[0]
                continue
            if peer.log_in(*INSIDER):
                raise ConnectionError("the insider cannot log in")
            alive = True
            while alive and before + after < share and assault.goes_on():
                read, alive = burst(peer.sock, whole, chance, _LAST)
                after += read
    return before, after, connections


def _unsubscribe(assault: Assault) -> None:
    """End what damaged subscriptions began: a damaged filter can let the victim's rows into their rings."""
    with Peer(assault.target.port) as peer:
        peer.log_in(*INSIDER)
        for client_id in INSIDER_IDS:
            peer.ask(pb.UNSUBSCRIPTION, pb.Unsub(destination=DESTINATION, client_id=str(client_id)))


def burst(sock: socket.socket, whole: Whole, chance: random.Random, last: bytes) -> tuple[int, bool]:
    """Send BURST damaged frames.

    whole: what is damaged.
    chance: how.
    last: one more frame, which is refused because it names the destination ELSEWHERE.
    Returns how many the node has surely read, and whether the connection lives on.
    """
    answers = 0
    sock.settimeout(WAIT_S)
    try:
        sock.sendall(b"".join(damaged(whole, chance) for _ in range(BURST)) + last)
        received = b""
        while True:
            piece = sock.recv(1 << 16)
            if not piece:
                return answers + 1, False  # the node read the frame because of which it ended the connection
            received += piece
            while len(received) >= HEADER_BYTES:
                end = HEADER_BYTES + int.from_bytes(received[:HEADER_BYTES], "big")
                if len(received) < end:
                    break
                if _SEEN in received[:end]:
                    return BURST, True
                answers += 1
                received = received[end:]
    except OSError:
        return answers, False  # reset, or a GET waits


ATTACKS = (Attack("frames", "damaged frames", frames),)
