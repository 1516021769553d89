"""AdminPeer: a peer of canal's admin port, as canal-admin is one. It checks nothing."""

from __future__ import annotations

import socket
import struct
from typing import Self

from google.protobuf.message import Message

from canal_ha.wire import scramble
from canal_ha.wire.proto import admin_protocol_pb2 as pb
from lab.ports import LOOPBACK


class AdminPeer:
    """One connection that has read the handshake; as a context manager it ends with the block.

    port: of the node.
    source: the address that it comes from.
    Raises OSError.
    """

    def __init__(self, port: int, *, source: str = LOOPBACK, timeout_s: float = 20.0) -> None:
        self.sock = socket.create_connection((LOOPBACK, port), timeout_s, (source, 0))
        greeting = self.packet()
        self.handshake = greeting.SerializeToString()
        self.seed = pb.Handshake.FromString(greeting.body).seeds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def log_in(self, name: str, password: str, idle_ms: int = 0) -> tuple[int, str]:
        """Log in; return code and message of the answer. password: "" sends none, as canal-admin does."""
        token = scramble.token(password, self.seed) if password else b""
        body = pb.ClientAuth(username=name, password=token, net_read_timeout=idle_ms, net_write_timeout=idle_ms)
        return self.ask(pb.CLIENTAUTHENTICATION, body)

    def request(
        self, kind: str, destination: str = "", *, action: str = "", file: str = "", lines: int = 0
    ) -> tuple[int, str]:
        """Send a request; return code and message of the answer.

        kind: packet type and action or, of a log, type.
        action: of a log.
        """
        packet, _, what = kind.partition(" ")
        bodies: dict[str, Message] = {
            "SERVER": pb.ServerAdmin(action=what),
            "INSTANCE": pb.InstanceAdmin(destination=destination, action=what),
            "LOG": pb.LogAdmin(type=what, action=action or "file", destination=destination, file=file, count=lines),
        }
        return self.ask(pb.PacketType.Value(packet), bodies[packet])

    def ask(self, packet_type: pb.PacketType.ValueType, body: Message) -> tuple[int, str]:
        """Send a packet; return code and message of the answer. Raises ConnectionError at the end."""
        self.send(pb.Packet(type=packet_type, body=body.SerializeToString()).SerializeToString())
        answer = self.packet()
        if answer.type != pb.ACK or answer.version != 1:
            raise ConnectionError(f"an unexpected packet: {answer}")
        ack = pb.Ack.FromString(answer.body)
        if not ack.HasField("code"):
            raise ConnectionError("the answer has no code")
        return ack.code, ack.message

    def send(self, packet: bytes) -> None:
        """Send the bytes of a packet, with its length in front."""
        self.sock.sendall(struct.pack(">i", len(packet)) + packet)

    def packet(self) -> pb.Packet:
        """Return the next packet. Raises ConnectionError at the end."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return pb.Packet.FromString(self._exactly(length))

    def closed(self) -> bool:
        """Whether the node closes the connection, without another byte."""
        try:
            return not self.sock.recv(1)
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            more = self.sock.recv(size - len(taken))
            if not more:
                raise ConnectionError("the node closed the connection")
            taken += more
        return taken
