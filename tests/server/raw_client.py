"""A client for tests that writes requests and reads replies one by one, without the checks of canal's clients."""

from __future__ import annotations

import socket
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from canal_ha.model.identity import ClientIdentity
from canal_ha.wire import messages
from canal_ha.wire.messages import Fetched
from canal_ha.wire.packets import client_frame
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from tests.server.harness import Served, entries_segment, reactor, read_frame, transaction
from tests.waiting import until

EXAMPLE = ClientIdentity("example", 1001)


class Reachable(Protocol):
    """A server with a data port."""

    def connect(self) -> socket.socket:
        """Return a new connection to the port."""


class RawClient:
    """A client that has read the handshake and, unless `authenticate` is false, is authenticated."""

    def __init__(
        self, server: Reachable, *, client_id: int = 1001, authenticate: bool = True, idle_ms: int = 0
    ) -> None:
        self.sock: socket.socket = server.connect()
        self.names: dict[str, Any] = {"destination": "example", "client_id": str(client_id)}
        handshake = self.packet()
        assert handshake.type == pb.HANDSHAKE
        self.seed = pb.Handshake.FromString(handshake.body).seeds
        if authenticate:
            self.write(pb.CLIENTAUTHENTICATION, pb.ClientAuth(net_read_timeout=idle_ms, net_write_timeout=idle_ms))
            assert self.refusal() == (0, "")

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def write(self, packet_type: pb.PacketType.ValueType, body: object) -> None:
        self.sock.sendall(client_frame(packet_type, body))  # type: ignore[arg-type]  # any message

    def subscribe(self, filter_text: str = "") -> None:
        self.write(pb.SUBSCRIPTION, pb.Sub(filter=filter_text, **self.names))

    def get(self, timeout: int = -1, size: int = 1000, unit: int = 2) -> None:
        self.write(pb.GET, pb.Get(fetch_size=size, timeout=timeout, unit=unit, **self.names))

    def ack(self, batch_id: int) -> None:
        self.write(pb.CLIENTACK, pb.ClientAck(batch_id=batch_id, **self.names))

    def rollback(self, batch_id: int = 0) -> None:
        self.write(pb.CLIENTROLLBACK, pb.ClientRollback(batch_id=batch_id, **self.names))

    def packet(self) -> pb.Packet:
        """Return the next packet. Fails at the end of the stream."""
        frame = read_frame(self.sock)
        assert frame is not None, "the server closed the connection"
        return pb.Packet.FromString(frame[4:])

    def refusal(self) -> tuple[int, str]:
        """Return code and text of the next packet, which must be an ACK."""
        packet = self.packet()
        assert packet.type == pb.ACK
        ack = pb.Ack.FromString(packet.body)
        return ack.error_code, ack.error_message

    def fetched(self) -> Fetched:
        """Return the content of the next packet, which must be a MESSAGES."""
        packet = self.packet()
        assert packet.type == pb.MESSAGES, pb.Ack.FromString(packet.body)
        return messages.decode(packet.body)

    def closed(self) -> bool:
        """Return whether the server closes the connection without another frame."""
        return read_frame(self.sock) is None


def acknowledge_after_the_end(served: Served, client: RawClient) -> None:
    """Take a batch, let the node stop, and acknowledge the batch when the node has closed its half of the connection.

    The cursor moves.
    """
    client.subscribe()
    assert client.refusal() == (0, "")
    served.push(entries_segment(transaction(1)))
    client.get(timeout=1000, size=1)
    batch = client.fetched()
    before = served.meta.cursor(1001)
    reactor.callFromThread(lambda: Deferred.fromCoroutine(served.service.stop()))
    assert client.closed()
    client.ack(batch.batch_id)
    until(lambda: served.meta.cursor(1001) != before, what="the cursor's move")
