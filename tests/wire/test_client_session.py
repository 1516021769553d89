"""The client session: it assigns replies to requests, and knows when an error may belong to another request."""

from collections.abc import Callable
from typing import Any

import pytest

from canal_ha.decode.kernel.entries import only_frames, whole_reply
from canal_ha.errors import LocalProtocolError, RemoteProtocolError, ServerRefused
from canal_ha.model.batch import GetAnswer
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.wire import messages, packets
from canal_ha.wire.client_session import LARGEST_FRAME_BYTES, Accepted, ClientSession, Greeting
from canal_ha.wire.framing import frame
from canal_ha.wire.messages import Fetched
from canal_ha.wire.packets import client_frame
from canal_ha.wire.proto import canal_protocol_pb2 as pb

EXAMPLE = ClientIdentity("example", 1001)
EMPTY = messages.encode(GetAnswer(-1))[0]


def connected(*, exact: bool = False, max_frame_bytes: int = LARGEST_FRAME_BYTES) -> ClientSession:
    session = ClientSession(
        max_frame_bytes=max_frame_bytes, only_frames=only_frames, whole_reply=whole_reply, exact=exact
    )
    session.receive(packets.handshake(b"12345678"))
    assert session.next() == Greeting(b"12345678")
    session.authenticate("", "", 1000)
    session.receive(packets.accepted())
    assert session.next() == Accepted()
    return session


def test_replies_come_in_the_order_of_requests() -> None:
    """The replies to pipelined requests are read in order, even if they arrive one byte at a time."""
    session = connected()
    session.subscribe(EXAMPLE)
    session.get(EXAMPLE, 1, -1)
    answers = []
    for byte in packets.accepted() + bytes(EMPTY):
        session.receive(bytes([byte]))
        answer = session.next()
        if answer is not None:
            answers.append(answer)
    assert answers[0] == Accepted()
    assert isinstance(answers[1], Fetched)
    assert answers[1].batch_id == -1


def test_a_reply_in_one_piece_is_not_copied() -> None:
    """A whole reply stays where it is; the replies around it come in their order, however they were cut."""
    session = connected()
    first, second = (frame(b"\x18\x07\x2a\x05\x08" + bytes([number]) + b"\x12\x01x") for number in (7, 8))
    session.get(EXAMPLE, 1, -1)
    session.get(EXAMPLE, 1, -1)
    session.receive(first)
    session.receive(second[:6])
    answer = session.next()
    assert isinstance(answer, Fetched)
    assert answer.data is first
    assert (answer.batch_id, bytes(answer.frames)) == (7, b"\x12\x01x")
    assert session.next() is None
    session.receive(second[6:])
    answer = session.next()
    assert isinstance(answer, Fetched)
    assert (answer.batch_id, bytes(answer.frames)) == (8, b"\x12\x01x")


def test_a_reply_above_the_limit_is_refused_in_one_piece_too() -> None:
    """The shortest way knows the limit of frames."""
    session = connected(max_frame_bytes=20)
    session.get(EXAMPLE, 1, -1)
    session.receive(frame(b"\x18\x07\x2a\x14\x08\x07\x12\x10" + b"x" * 16))
    with pytest.raises(RemoteProtocolError, match="limit of 20"):
        session.next()


def test_a_request_for_exact_values_has_canals_bytes_before_its_own() -> None:
    """A server that does not know the field reads the request that canal's client sends."""
    for plain, exact in (
        (connected().get(EXAMPLE, 7, -1), connected(exact=True).get(EXAMPLE, 7, -1)),
        (connected().subscribe(EXAMPLE), connected(exact=True).subscribe(EXAMPLE)),
    ):
        without, asking = pb.Packet.FromString(plain[4:]), pb.Packet.FromString(exact[4:])
        assert asking.type == without.type
        assert asking.body == without.body + b"\xb0\x06\x01"  # field 102


def test_an_error_after_an_ack_leaves_the_session_out_of_step() -> None:
    """An error that may belong to an earlier ACK leaves the session out of step, and it refuses further requests."""
    session = connected()
    session.ack(EXAMPLE, 4)
    assert session.unconfirmed
    session.get(EXAMPLE, 1, -1)
    session.receive(packets.refused(400, "batchId:4 is not the firstly:3\n"))
    with pytest.raises(ServerRefused, match=r"something goes wrong with reason: batchId:4 is not the firstly:3$"):
        session.next()
    assert not session.in_step
    with pytest.raises(LocalProtocolError):
        session.get(EXAMPLE, 1, -1)


def test_a_reply_confirms_what_was_sent_before_it() -> None:
    """After a good reply an error belongs to a later request, so that the session stays in step."""
    session = connected()
    session.rollback(EXAMPLE)
    session.subscribe(EXAMPLE)
    session.receive(packets.accepted())
    session.next()
    assert not session.unconfirmed
    session.get(EXAMPLE, 1, -1)
    session.receive(packets.refused(400, "no"))
    with pytest.raises(ServerRefused) as raised:
        session.next()
    assert raised.value.code == 400
    assert session.in_step


def test_an_error_nobody_waits_for_belongs_to_an_ack() -> None:
    """An error without a waiting request is raised at once, and leaves the session out of step."""
    session = connected()
    session.ack(EXAMPLE, 4)
    session.receive(packets.refused(400, "no"))
    with pytest.raises(ServerRefused):
        session.next()
    assert not session.in_step


def _framed(**fields: Any) -> bytes:
    return frame(pb.Packet(**fields).SerializeToString())


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (lambda: _framed(type=pb.HANDSHAKE), "unsupported version"),
        (lambda: _framed(type=pb.ACK, version=1), "expect handshake"),
        (lambda: _framed(type=pb.HANDSHAKE, version=1, body=b"\xff"), "invalid HANDSHAKE"),
        (lambda: _framed(type=pb.HANDSHAKE, version=1, compression=pb.GZIP), "compression is not supported"),
        (lambda: b"\xff\xff\xff\xff", "bytes"),
    ],
)
def test_what_no_canal_server_greets_with(data: Callable[[], bytes], text: str) -> None:
    """Another version, another packet or compression is refused with the text of canal's client."""
    session = ClientSession()
    session.receive(data())
    with pytest.raises(RemoteProtocolError, match=text):
        session.next()


@pytest.mark.parametrize("data", [
    client_frame(pb.GET, pb.Get()), _framed(type=pb.MESSAGES, body=b"\xff"), _framed(type=pb.ACK, body=b"\xff"),
])  # fmt: skip
def test_what_no_canal_server_answers_a_get_with(data: bytes) -> None:
    """A request or an unreadable body as the reply to a GET raises RemoteProtocolError."""
    session = connected()
    session.get(EXAMPLE, 1, -1)
    session.receive(data)
    with pytest.raises(RemoteProtocolError):
        session.next()


def test_messages_do_not_answer_a_subscription() -> None:
    """A MESSAGES packet as the reply to SUBSCRIPTION raises RemoteProtocolError."""
    session = connected()
    session.subscribe(EXAMPLE)
    session.receive(EMPTY)
    with pytest.raises(RemoteProtocolError, match="MESSAGES"):
        session.next()


def test_a_cursor_is_asked_for_and_told() -> None:
    """A client that asks gets its cursor, or None from an older server; a malformed one is a protocol error."""
    session = connected()
    plain = session.subscribe(EXAMPLE)
    assert plain == client_frame(pb.SUBSCRIPTION, pb.Sub(destination="example", client_id="1001"))
    cursor = LogPosition("bin.000001", 4, mark="spool a")
    session.receive(packets.accepted())
    assert session.next() == Accepted()
    for reply, told in ((packets.accepted(), None), (packets.accepted(cursor), cursor)):
        session.subscribe(EXAMPLE, tell_cursor=True)
        session.receive(reply)
        assert session.next() == Accepted(told)
    for text in ("{", "[" * 100_000, "{}"):
        bad = connected()
        bad.subscribe(EXAMPLE, tell_cursor=True)
        bad.receive(frame(pb.Packet(type=pb.ACK, body=pb.Ack(cursor=text).SerializeToString()).SerializeToString()))
        with pytest.raises(RemoteProtocolError, match="invalid cursor"):
            bad.next()


def test_an_ack_without_a_mark_is_canals() -> None:
    """An ACK has canal's bytes without a mark, and one more field with a mark."""
    session = connected()
    body = pb.ClientAck(destination="example", client_id="1001", batch_id=4)
    assert session.ack(EXAMPLE, 4) == client_frame(pb.CLIENTACK, body)
    body.mark = "m"
    assert session.ack(EXAMPLE, 4, "m") == client_frame(pb.CLIENTACK, body)


@pytest.mark.parametrize("mark", ["", "here"])
def test_an_ack_has_the_number_of_its_batch(mark: str) -> None:
    """Its bytes are those of protobuf, whatever the number's size."""
    identity = ClientIdentity("example", 1001)
    made = connected()
    for number in (-1, 0, 1, 127, 128, 300, 16_383, 16_384, 2**31, 2**63 - 1):
        body = pb.ClientAck(destination="example", client_id="1001", batch_id=number, mark=mark)
        assert made.ack(identity, number, mark) == client_frame(pb.CLIENTACK, body)
