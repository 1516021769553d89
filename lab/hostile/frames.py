"""Attack with frames that are damaged at random, before and after the login. The same seed damages in the same way."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

from canal_ha.wire.packets import client_frame
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from lab.hostile.attack import Assault, Attack
from lab.hostile.peer import Peer
from lab.hostile.stage import DESTINATION, ELSEWHERE, INSIDER, INSIDER_IDS

FRAMES = 1_000_000
BURST = 100
_NAMED: Mapping[str, Any] = {"destination": DESTINATION, "client_id": str(INSIDER_IDS[-1])}
_WHOLE: tuple[tuple[pb.PacketType.ValueType, Message], ...] = (
    (pb.SUBSCRIPTION, pb.Sub(filter=r".*\..*", **_NAMED)),
    (pb.UNSUBSCRIPTION, pb.Unsub(**_NAMED)),
    (pb.GET, pb.Get(fetch_size=100, timeout=-1, unit=2, **_NAMED)),
    (pb.CLIENTACK, pb.ClientAck(batch_id=7, **_NAMED)),
    (pb.CLIENTROLLBACK, pb.ClientRollback(batch_id=7, **_NAMED)),
    (pb.DUMP, pb.Dump(journal="binlog.000001", position=4, **_NAMED)),
    (pb.CLIENTAUTHENTICATION, pb.ClientAuth(username="a", password=b"b" * 20, net_read_timeout=1)),
)
_LAST = client_frame(pb.UNSUBSCRIPTION, pb.Unsub(destination=ELSEWHERE, client_id="1"))
"""Is always refused with the account's missing right, which shows that everything before it was read."""
_SEEN = b"has no right on destination:" + ELSEWHERE.encode()


def damaged(chance: random.Random) -> bytes:
    """Return a frame with damaged bytes: mostly in the request's body, now and then in the envelope or the length.

    The node ends the connection after a damaged envelope or length, so most frames have none.
    """
    kind, message = chance.choice(_WHOLE)
    packet = pb.Packet(type=kind, version=1, body=_damage(message.SerializeToString(), chance)).SerializeToString()
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
    """Damaged frames in bursts, one part of them before a login."""
    chance = random.Random(assault.seed)
    wanted, sent, connections = assault.times(FRAMES), 0, 0
    before = wanted // 100
    while sent < wanted:
        with Peer(assault.target.port, source=f"127.0.0.{chance.randint(2, 250)}") as peer:
            connections += 1
            if sent < before:
                peer.seed()
                sent += _burst(peer, chance)[0]
                continue
            if peer.log_in(*INSIDER):
                raise ConnectionError("the insider cannot log in")
            alive = True
            while alive and sent < wanted:
                count, alive = _burst(peer, chance)
                sent += count
    assault.done = f"{sent} damaged frames on {connections} connections"


def _burst(peer: Peer, chance: random.Random) -> tuple[int, bool]:
    """Send some frames; return how many the node has surely read, and whether the connection lives on."""
    peer.sock.settimeout(0.5)
    answers = b""
    try:
        peer.sock.sendall(b"".join(damaged(chance) for _ in range(BURST)) + _LAST)
        while _SEEN not in answers[-4096:]:
            piece = peer.sock.recv(1 << 16)
            if not piece:
                return 1, False
            answers = answers[-4096:] + piece
    except TimeoutError:
        return 1, False  # a GET waits for ever
    except OSError:
        return 1, False
    return BURST, True


ATTACKS = (Attack("frames", "damaged frames", frames),)
