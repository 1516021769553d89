"""Clients of the load, by the hundred on one asyncio loop, each around canal_ha.wire's client session."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

from canal_ha.errors import CanalError
from canal_ha.model.identity import ClientIdentity
from canal_ha.wire.client_session import Accepted, ClientSession, Greeting
from canal_ha.wire.messages import Fetched
from canal_ha.wire.proto.entry_protocol_pb2 import ROWDATA, Entry, RowChange
from lab.ports import LOOPBACK

GET_KIB = 1024
GET_TIMEOUT_MS = 1000
NO_IDLE_LIMIT_MS = 3_600_000
UNREAD_GETS = 64  # that a slow reader sends before it stops reading
UNREAD_BYTES = 64 * 1024  # the receive buffer of a slow reader
SMALL, WIDE = "small", "wide"  # destinations
LARGE_BYTES = 1 << 20  # a batch of `wide` of this size is counted as one large row, and no batch of `wide` is parsed


class Kind(Enum):
    """What a client does after it has authenticated."""

    IDLE = "idle"
    HEALTHY = "healthy"
    SLOW_READER = "slow reader"
    NEVER_ACKS = "never acknowledges"


@dataclass(slots=True)
class Tally:
    """What all clients saw.

    ready: clients that have done what they do once: authenticated if idle, subscribed otherwise.
    rows: that healthy clients received, large rows left out.
    large_rows: that healthy clients received.
    delays_s: of the rows, from the start of their INSERT to the client.
    errors: why connections ended.
    """

    ready: int = 0
    rows: int = 0
    large_rows: int = 0
    delays_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, kind: Kind, identity: ClientIdentity, tally: Tally) -> None:
        self._kind = kind
        self._identity = identity
        self._tally = tally
        self._session = ClientSession(only_frames=lambda packet, start: True)
        self._subscribing = self._ending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._session.receive(data)
        try:
            while (answer := self._session.next()) is not None:
                self._take(answer)
        except CanalError as error:
            self._tally.errors.append(f"{self._kind.value}: {error}")
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ending:
            self._tally.errors.append(f"{self._kind.value}: connection lost: {exc}")

    def end(self) -> None:
        """Close the connection at once."""
        self._ending = True
        self._transport.abort()

    def _take(self, answer: Greeting | Accepted | Fetched) -> None:
        match answer:
            case Greeting():
                self._transport.write(self._session.authenticate("", None, NO_IDLE_LIMIT_MS))
            case Accepted() if self._kind is Kind.IDLE:
                self._tally.ready += 1
            case Accepted() if not self._subscribing:
                self._subscribing = True
                self._transport.write(self._session.subscribe(self._identity))
            case Accepted():
                self._tally.ready += 1
                self._begin()
            case Fetched():
                self._fetched(answer)

    def _begin(self) -> None:
        if self._kind is not Kind.SLOW_READER:
            self._get()
            return
        for _ in range(UNREAD_GETS):
            self._get()
        self._transport.pause_reading()

    def _get(self) -> None:
        self._transport.write(self._session.get(self._identity, GET_KIB, GET_TIMEOUT_MS, eager=True))

    def _fetched(self, batch: Fetched) -> None:
        if self._kind is Kind.HEALTHY and batch.batch_id >= 0:
            self._count(batch)
            self._transport.write(self._session.ack(self._identity, batch.batch_id))
        self._get()

    def _count(self, batch: Fetched) -> None:
        now = time.monotonic()
        if self._identity.destination == WIDE:
            self._tally.large_rows += len(batch.data) > LARGE_BYTES
            return
        for data in batch.entries():
            entry = Entry.FromString(data)
            if entry.entryType == ROWDATA:
                for row in RowChange.FromString(entry.storeValue).rowDatas:
                    self._tally.rows += 1
                    self._tally.delays_s.append(now - float(row.afterColumns[1].value))


async def connect(port: int, kind: Kind, identity: ClientIdentity, tally: Tally) -> Client:
    """Open one connection."""
    sock = socket.socket()
    if kind is Kind.SLOW_READER:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UNREAD_BYTES)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, (LOOPBACK, port))
    _, client = await loop.create_connection(lambda: Client(kind, identity, tally), sock=sock)
    return client
