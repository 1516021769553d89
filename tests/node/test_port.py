"""Bytes that strangers and faulty clients send to the port of a real node with a user and a password."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.thread_runtime import now
from canal_ha.errors import CanalError, ConnectionLost
from canal_ha.wire import scramble
from canal_ha.wire.packets import client_frame
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from lab import MySQL, Node, follow
from lab.ports import LOOPBACK
from tests.node.following import column, read

pytestmark = pytest.mark.real

USER, PASSWORD = "canal", "geheim"


@pytest.fixture(scope="module")
def node(mysql: MySQL) -> Iterator[Node]:
    properties = {"canal.user": USER, "canal.passwd": scramble.secret_of(PASSWORD).hex()}
    with Node({"example": follow(mysql)}, properties=properties, login=(USER, PASSWORD)) as running:
        yield running


def stranger(node: Node) -> socket.socket:
    """Return a connection that has received the handshake."""
    connection = socket.create_connection((LOOPBACK, node.port), 5)
    assert packet(connection).type == pb.HANDSHAKE
    return connection


def packet(connection: socket.socket) -> pb.Packet:
    """Return the next packet. Raises EOFError when the server closes the connection."""
    (length,) = struct.unpack(">i", exactly(connection, 4))
    return pb.Packet.FromString(exactly(connection, length))


def exactly(connection: socket.socket, size: int) -> bytes:
    """Return `size` bytes. Raises EOFError at the end of the stream and at a reset."""
    data = b""
    while len(data) < size:
        try:
            part = connection.recv(size - len(data))
        except ConnectionResetError:
            part = b""
        if not part:
            raise EOFError
        data += part
    return data


def connector(node: Node, destination: str = "example", password: str = PASSWORD) -> SimpleConnector:
    return SimpleConnector(LOOPBACK, node.port, destination, 1001, USER, password)


def test_a_wrong_scramble(node: Node) -> None:
    """A wrong password gets canal's error text; the right password works."""
    with pytest.raises(CanalError, match="auth failed for user:canal"), connector(node, password="falsch"):
        pass
    with connector(node) as client:
        client.subscribe()


@pytest.mark.parametrize("body", [pb.Get(destination="example", client_id="1001", fetch_size=10, timeout=0), None])
def test_frames_before_authentication(node: Node, body: pb.Get | None) -> None:
    """canal reads any first packet as an authentication, so a GET or an empty frame fails as one."""
    with stranger(node) as connection:
        connection.sendall(client_frame(pb.GET, body) if body else struct.pack(">i", 0))
        answer = packet(connection)
        assert answer.type == pb.ACK
        assert "auth failed" in pb.Ack.FromString(answer.body).error_message


@pytest.mark.parametrize("length", [-1, 2**31 - 1, 64 * 1024 * 1024])
def test_length_bombs(node: Node, length: int) -> None:
    """The node closes the connection at once, before it reads a body of that size, and continues to run."""
    with stranger(node) as connection:
        connection.sendall(struct.pack(">i", length) + b"x" * 100)
        with pytest.raises(EOFError):
            packet(connection)
    assert node.running() == {"example"}


def test_length_bombs_of_those_who_are_known(node: Node) -> None:
    """After authentication the limit is canal.max.frame.bytes."""
    with connector(node) as client:
        client.subscribe()
        assert client._calls._link is not None
        now(client._calls._link.send(struct.pack(">i", 2**30)))
        with pytest.raises(ConnectionLost):
            client.get_without_ack(1, 0)


def test_an_unknown_destination(node: Node) -> None:
    """The error has canal's text, which clients search for."""
    with connector(node, "nobody") as client, pytest.raises(CanalError, match="destination:nobody should start first"):
        client.subscribe()


def test_batches_out_of_order(mysql: MySQL, node: Node, database: str) -> None:
    """An ACK of the second batch, or of a batch that never existed, is an error and moves no cursor."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY, v varchar(900))")
    with connector(node) as client:
        client.subscribe(rf"{database}\.t")
        for number in range(3):
            mysql.execute(f"INSERT INTO {database}.t VALUES ({number}, REPEAT('x', 900))")
        batches: list[int] = []
        while len(batches) < 2:
            message = client.get_without_ack(1, 100)
            if message:
                batches.append(message.id)
        client.ack(batches[1])
        with pytest.raises(CanalError, match=rf"batchId:{batches[1]} is not the firstly:{batches[0]}"):
            client.get_without_ack(1, 0)
    with connector(node) as client:
        client.subscribe(rf"{database}\.t")
        client.ack(4711)
        with pytest.raises(CanalError, match=r"ack error , clientId:1001 batchId:4711 is not exist , please check"):
            client.get_without_ack(1, 0)
    with connector(node) as client:
        client.subscribe(rf"{database}\.t")
        assert column(read(client, 3)) == [0, 1, 2]
