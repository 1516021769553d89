"""Recorded sessions between canal's server and real clients, replayed: our server must write the same bytes.

Seed and channel id of every connection are those of the recording, so that handshakes, tokens and error texts agree.
Addresses differ, and a Java stack trace is compared only up to its first line.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from tests.server.harness import Served, entries_segment, on_reactor, read_frame, transaction

WIRE = Path(__file__).parents[1] / "golden" / "wire"
PASSWD = "E3619321C1A937C46A0D8BD1DAC39F93B27D4458"
ELSEWHERE = {
    "raw_bad_filter": "canal accepts what is no regular expression; we answer 400 (test_service)",
    "raw_huge_length": "no whole frames (test_service)",
    "raw_negative_length": "no whole frames (test_service)",
}
SESSIONS = sorted(
    name for path in WIRE.glob("*.jsonl.gz") if (name := path.name.removesuffix(".jsonl.gz")) not in ELSEWHERE
)
SILENT = (pb.CLIENTACK, pb.CLIENTROLLBACK)
CHANNEL = re.compile(r"\[id: 0x([0-9a-f]{8}), ")
ADDRESSES = re.compile(r"/127\.0\.0\.1:\d+ => /127\.0\.0\.1:\d+")


class Recording:
    """One file: its lines, and for every request its reply."""

    def __init__(self, name: str) -> None:
        with gzip.open(WIRE / f"{name}.jsonl.gz", "rt") as file:
            self.lines: list[dict[str, Any]] = [json.loads(line) for line in file]
        self.reply_to: dict[int, dict[str, Any]] = {}  # seq of a request -> line of its reply
        for conn in {line["conn"] for line in self.lines if "conn" in line}:
            self._match(conn)

    def frames(self, conn: int, direction: str) -> deque[dict[str, Any]]:
        chosen = (line for line in self.lines if line.get("conn") == conn and line.get("dir") == direction)
        return deque(line for line in chosen if "event" not in line)

    def _match(self, conn: int) -> None:
        replies = self.frames(conn, "s2c")
        replies.popleft()  # HANDSHAKE
        for number, line in enumerate(self.frames(conn, "c2s")):
            silent = number > 0 and packet_of(line).type in SILENT
            if replies and (not silent or is_error(replies[0])):
                self.reply_to[line["seq"]] = replies.popleft()
        assert not replies

    def seeds(self) -> Iterator[bytes]:
        """Yield for each connection its seed and then its channel id, in the order in which the connections open."""
        for line in self.lines:
            if line.get("event") == "open":
                frames = self.frames(line["conn"], "s2c")
                yield pb.Handshake.FromString(packet_of(frames[0]).body).seeds
                found = [CHANNEL.search(error_of(frame)) for frame in frames]
                yield bytes.fromhex(next((match[1] for match in found if match), "00000000"))

    def first_batch_id(self) -> int:
        """Return the id of the session's first batch; 1 if there is none."""
        ids = (messages_of(line).batch_id for line in self.lines if is_messages(line))
        return next((batch_id for batch_id in ids if batch_id > 0), 1)

    def first_filter(self) -> str:
        subscriptions = (line for line in self.lines if line.get("dir") == "c2s" and "hex" in line)
        return next((pb.Sub.FromString(packet_of(line).body).filter for line in subscriptions
                     if packet_of(line).type == pb.SUBSCRIPTION), "")  # fmt: skip


def packet_of(line: dict[str, Any]) -> pb.Packet:
    """Return the packet of a frame; an empty packet for garbage."""
    return pb.Packet() if "undecodable" in line["decoded"] else pb.Packet.FromString(bytes.fromhex(line["hex"])[4:])


def is_messages(line: dict[str, Any]) -> bool:
    return line.get("dir") == "s2c" and "hex" in line and packet_of(line).type == pb.MESSAGES


def messages_of(line: dict[str, Any]) -> pb.Messages:
    return pb.Messages.FromString(packet_of(line).body)


def error_of(line: dict[str, Any]) -> str:
    packet = packet_of(line)
    return pb.Ack.FromString(packet.body).error_message if packet.type == pb.ACK else ""


def is_error(line: dict[str, Any]) -> bool:
    return bool(error_of(line))


def comparable(frame: bytes) -> object:
    """Return the frame itself, or code and stable text of an error."""
    packet = pb.Packet.FromString(frame[4:])
    if packet.type != pb.ACK or not packet.body:
        return frame.hex()
    ack = pb.Ack.FromString(packet.body)
    first_line = ack.error_message.partition("\n\tat ")[0].rstrip("\n")
    return packet.version, ack.error_code, ADDRESSES.sub("/A => /B", first_line)


class Replay:
    """Plays the clients' side of a recording, and pushes the source's entries just before the GET that returns them."""

    def __init__(self, recording: Recording, served: Served) -> None:
        self.recording = recording
        self.served = served
        self.sockets: dict[int, socket.socket] = {}
        self.ready: list[bytes] = []  # pushed and not delivered
        self.handed_out: dict[int, list[bytes]] = {}

    def run(self) -> None:
        for line in self.recording.lines:
            match line:
                case {"event": "open", "conn": conn}:
                    self.sockets[conn] = self.served.connect()
                case {"event": "eof" | "reset", "by": "client", "conn": conn}:
                    if not self._more_to_read(line):
                        self.sockets[conn].close()
                case {"event": "eof", "by": "server", "conn": conn}:
                    if self.sockets[conn].fileno() >= 0 and not self._client_left(line):
                        assert read_frame(self.sockets[conn]) is None
                case {"dir": "c2s", "conn": conn, "hex": data}:
                    self._before(line)
                    self.sockets[conn].sendall(bytes.fromhex(data))
                case {"dir": "s2c", "conn": conn, "hex": data}:
                    got = read_frame(self.sockets[conn])
                    assert got is not None, f"closed before frame {line['seq']}"
                    assert comparable(got) == comparable(bytes.fromhex(data)), f"frame {line['seq']}"

    def close(self) -> None:
        for sock in self.sockets.values():
            sock.close()

    def _more_to_read(self, line: dict[str, Any]) -> bool:
        frames = self.recording.frames(line["conn"], "s2c")
        return bool(frames) and frames[-1]["seq"] > line["seq"]

    def _client_left(self, line: dict[str, Any]) -> bool:
        return any(
            other.get("by") == "client" and other.get("conn") == line["conn"] and other["seq"] < line["seq"]
            for other in self.recording.lines
        )

    def _before(self, line: dict[str, Any]) -> None:
        """Note what this request changes in the store, and push the entries that its reply needs."""
        packet = packet_of(line)
        reply = self.recording.reply_to.get(line["seq"])
        if packet.type == pb.CLIENTACK and not reply:
            self.handed_out.pop(pb.ClientAck.FromString(packet.body).batch_id, None)
        elif packet.type == pb.CLIENTROLLBACK and not reply:
            self.ready = [entry for batch in self.handed_out.values() for entry in batch] + self.ready
            self.handed_out.clear()
        elif packet.type == pb.GET and reply and is_messages(reply) and messages_of(reply).messages:
            told = messages_of(reply)
            entries = list(told.messages)
            assert entries[: len(self.ready)] == self.ready
            if len(entries) > len(self.ready):
                self.served.push(entries_segment(entries[len(self.ready) :]))
            self.ready = []
            self.handed_out[told.batch_id] = entries


async def use_up_ids(served: Served, first: int, filter_text: str) -> None:
    """Deliver batches and roll them back until the next batch gets the id `first`."""
    identity = ClientIdentity("example", 1001, filter_text)
    await served.embedded.subscribe(identity)
    if first > 1:
        served.push(entries_segment(transaction(0)))
    for _ in range(first - 2):
        await served.embedded.get(identity, GetRequest(1, 0.0))
        await served.embedded.rollback(identity, 0)
    if first > 1:
        used = await served.embedded.get(identity, GetRequest(1, 0.0))
        assert used.batch_id == first - 1
        await served.embedded.ack(identity, used.batch_id)


@pytest.mark.parametrize("name", SESSIONS)
def test_server_answers_as_canals_did(name: str) -> None:
    """Every frame on every connection of the session equals the recorded one."""
    recording = Recording(name)
    asks = "auth_" in name or "wrong_password" in name
    user: dict[str, Any] = (
        {"user": "canal", "passwd": PASSWD} if asks and "not_required" not in name and "raw_" not in name else {}
    )
    random = recording.seeds()
    destination = "elsewhere" if "standby" in name else "example"
    with Served(destination=destination, hurried=True, random=lambda size: next(random), **user) as served:
        if destination == "example":
            on_reactor(lambda: use_up_ids(served, recording.first_batch_id(), recording.first_filter()))
        replay = Replay(recording, served)
        try:
            replay.run()
        finally:
            replay.close()
