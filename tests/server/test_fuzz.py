"""Whatever a peer sends, only its own connection is affected."""

from __future__ import annotations

import socket
from random import Random
from typing import Any

from canal_ha.wire.packets import client_frame
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from tests.server.harness import Served, entries_segment, read_frame, transaction
from tests.server.raw_client import RawClient

ROUNDS = 300
NAMES: dict[str, Any] = {"destination": "example", "client_id": "1001"}
REQUESTS = [
    client_frame(pb.CLIENTAUTHENTICATION, pb.ClientAuth()),
    client_frame(pb.SUBSCRIPTION, pb.Sub(**NAMES)),
    client_frame(pb.GET, pb.Get(timeout=-1, fetch_size=10, **NAMES)),
    client_frame(pb.GET, pb.Get(timeout=5, unit=2, fetch_size=10, **NAMES)),
    client_frame(pb.CLIENTACK, pb.ClientAck(batch_id=1, **NAMES)),
    client_frame(pb.CLIENTROLLBACK, pb.ClientRollback(**NAMES)),
    client_frame(pb.UNSUBSCRIPTION, pb.Unsub(**NAMES)),
]


def mangled(random: Random) -> bytes:
    """Return real requests with bytes changed, cut or inserted, or with noise in a frame."""
    data = bytearray(b"".join(random.choices(REQUESTS, k=random.randrange(1, 6))))
    for _ in range(random.randrange(4)):
        kind, at = random.randrange(4), random.randrange(len(data) or 1)
        if kind == 0 and data:
            data[at] = random.randrange(256)
        elif kind == 1:
            del data[at : at + random.randrange(8)]
        elif kind == 2:
            data[at:at] = random.randbytes(random.randrange(12))
        else:
            noise = random.randbytes(random.randrange(40))
            data += len(noise).to_bytes(4, "big") + noise
    return bytes(data)


def test_mangled_requests_harm_nobody_else() -> None:
    """A good client is served beside hundreds of broken peers, and no connection is left at the end."""
    random = Random(4711)
    with Served() as served, RawClient(served, client_id=2) as good:
        good.subscribe()
        assert good.refusal() == (0, "")
        for number in range(ROUNDS):
            with served.connect() as bad:
                bad.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    if random.random() < 0.7:
                        bad.sendall(REQUESTS[0])
                        read_frame(bad)
                    data = mangled(random)
                    cut = random.randrange(len(data) + 1)
                    bad.sendall(data[:cut])
                    bad.sendall(data[cut:])
                except (BrokenPipeError, ConnectionResetError):
                    continue
            if number % 30 == 0:
                served.push(entries_segment(transaction(number)))
                good.get(timeout=100, size=1)
                fetched = good.fetched()
                assert len(fetched.entries()) == 3
                good.ack(fetched.batch_id)
    assert served.service.counters.connections == 0
