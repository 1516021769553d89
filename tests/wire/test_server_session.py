"""The server session: any split of the bytes gives the same requests, and garbage raises only known errors."""

import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canal_ha.errors import BatchNotFirst, LocalProtocolError, LoginRefused, NotRunningHere, RemoteProtocolError
from canal_ha.model.batch import Batch, GetAnswer, PositionRange
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.wire import messages, packets
from canal_ha.wire.framing import frame
from canal_ha.wire.packets import Acknowledge, Get, Request, Rollback, Subscribe, Unsubscribe, client_frame
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from canal_ha.wire.server_session import Reply, ServerSession

ME: dict[str, Any] = {"destination": "example", "client_id": "1001"}
EXAMPLE = ClientIdentity("example", 1001)


class Door:
    """Lets everybody in, or nobody."""

    def __init__(self, *, opened: bool) -> None:
        self._opened = opened

    def log_in(self, username: str, password: bytes, seed: bytes) -> None:
        if not self._opened:
            raise LoginRefused(f"auth failed for user:{username}")


ANYONE = Door(opened=True)
SERVER_EXCEPTION = "com.alibaba.otter.canal.server.exception.CanalServerException"
AUTHENTICATION = client_frame(pb.CLIENTAUTHENTICATION, pb.ClientAuth())


def session(guard: Door = ANYONE, max_frame_bytes: int = 1 << 20) -> ServerSession:
    return ServerSession(seed=b"12345678", guard=guard, channel="[here]", max_frame_bytes=max_frame_bytes)


def ack_of(reply: object) -> tuple[int, str]:
    """Return the code and text of an ACK reply."""
    assert isinstance(reply, Reply)
    packet = pb.Packet.FromString(b"".join(reply.pieces)[4:])
    assert (packet.type, packet.version) == (pb.ACK, 1)
    ack = pb.Ack.FromString(packet.body)
    return ack.error_code, ack.error_message


def authenticated() -> ServerSession:
    made = session()
    made.receive(AUTHENTICATION)
    assert ack_of(made.next()) == (0, "")
    return made


def converse(made: ServerSession, chunks: Iterable[bytes]) -> list[Request | bytes]:
    """Feed chunks and answer each request at once; return the requests and the session's own replies, in order."""
    said: list[Request | bytes] = []
    for chunk in chunks:
        made.receive(chunk)
        while (step := made.next()) is not None:
            if isinstance(step, Reply):
                said.append(b"".join(step.pieces))
                continue
            said.append(step)
            assert made.next() is None, "a second request while the first is at work"
            made.fetched(GetAnswer(-1)) if isinstance(step, Get) else made.done()
    return said


names = st.sampled_from(["", "example", "d"])
ids = st.sampled_from(["", "0", "1001", "-5", "+7", "abc", "99999"])
numbers = st.sampled_from([-1, 0, 1, 7, 2**40])
bodies = st.one_of(
    st.builds(lambda d, c: (pb.SUBSCRIPTION, pb.Sub(destination=d, client_id=c, filter=".*")), names, ids),
    st.builds(lambda d, c: (pb.UNSUBSCRIPTION, pb.Unsub(destination=d, client_id=c)), names, ids),
    st.builds(lambda d, c, t: (pb.GET, pb.Get(destination=d, client_id=c, timeout=t)), names, ids, numbers),
    st.builds(
        lambda d, c, b: (pb.CLIENTACK, pb.ClientAck(destination=d, client_id=c, batch_id=b)),
        names, ids, numbers,
    ),
    st.builds(
        lambda d, c, b: (pb.CLIENTROLLBACK, pb.ClientRollback(destination=d, client_id=c, batch_id=b)),
        names, ids, numbers,
    ),
    st.builds(lambda t: (t, pb.HeartBeat()), st.sampled_from([pb.HEARTBEAT, pb.DUMP, pb.SHUTDOWN])),
)  # fmt: skip


def split(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@settings(deadline=None)  # the first example pays for imports
@given(st.lists(bodies, max_size=12), st.lists(st.integers(0, 10**6), max_size=30))
def test_any_chunking_gives_the_same_conversation(sent: list[tuple[int, object]], cuts: list[int]) -> None:
    """Requests and replies are the same, in the same order, wherever the bytes are cut."""
    data = AUTHENTICATION + b"".join(client_frame(*body) for body in sent)  # type: ignore[arg-type]  # pairs as above
    whole = converse(session(), [data])
    assert converse(session(), split(data, cuts)) == whole
    assert converse(session(), [data[at : at + 1] for at in range(len(data))]) == whole


@settings(deadline=None)  # the first example pays for imports
@given(st.lists(st.binary(max_size=80), max_size=8), st.booleans())
def test_garbage_ends_in_an_error_or_a_reply(chunks: list[bytes], known: bool) -> None:
    """Garbage, framed or not, gives replies or raises RemoteProtocolError."""
    for framed in (lambda data: data, lambda data: len(data).to_bytes(4, "big") + data):
        made = authenticated() if known else session(Door(opened=False))
        try:
            converse(made, map(framed, chunks))
        except RemoteProtocolError:
            continue


def test_requests_are_read_as_they_are_meant() -> None:
    """Every request is read, with its defaults and with the values that canal's own clients send."""
    made = authenticated()
    sent = [
        (pb.SUBSCRIPTION, pb.Sub(filter="a,b", **ME)),
        (pb.UNSUBSCRIPTION, pb.Unsub(**ME)),
        (pb.GET, pb.Get(fetch_size=5, timeout=-1, unit=-1, **ME)),
        (pb.GET, pb.Get(**ME)),
        (pb.GET, pb.Get(fetch_size=-1, timeout=3, unit=3, **ME)),
        (pb.GET, pb.Get(timeout=2**63 - 1, unit=2, **ME)),
        (pb.CLIENTACK, pb.ClientAck(batch_id=4, **ME)),
        (pb.CLIENTROLLBACK, pb.ClientRollback(**ME)),
    ]
    assert converse(made, [client_frame(*body) for body in sent]) == [
        Subscribe(ClientIdentity("example", 1001, "a,b")),
        Unsubscribe(EXAMPLE),
        Get(EXAMPLE, GetRequest(5, 0.0)),
        Get(EXAMPLE, GetRequest(1000, None)),
        Get(EXAMPLE, GetRequest(1000, 3000.0)),
        Get(EXAMPLE, GetRequest(1000, None)),
        Acknowledge(EXAMPLE, 4),
        Rollback(EXAMPLE, 0),
    ]


def _ack_frames(number: int) -> list[bytes]:
    """Return frames that acknowledge a batch: as our client sends it, and in other forms that protobuf allows."""
    varint = messages.varint(number)
    plain = pb.ClientAck(**ME, batch_id=number).SerializeToString()
    fields = plain[: -1 - len(varint)]
    longer = varint[:-1] + bytes((varint[-1] | 0x80, 0))
    bodies = [plain, b"\x18" + varint + fields, fields + b"\x18" + longer, plain + b"\x18" + varint]
    bodies.append(pb.ClientAck(**ME, batch_id=number, mark="m").SerializeToString())
    bodies.append(pb.ClientAck(destination="other", client_id="7", batch_id=number).SerializeToString())
    bodies.append(pb.ClientAck(destination="x\x18" + varint.decode("latin-1")[:1], client_id="7").SerializeToString())
    typed = b"\x18%c" % pb.CLIENTACK
    found = [frame(typed + b"\x2a" + messages.varint(len(body)) + body) for body in bodies]
    whole = b"\x2a" + messages.varint(len(plain)) + plain
    return [*found, frame(whole + typed), frame(typed + whole + whole), frame(b"\x10\x01" + typed + whole)]


@settings(max_examples=200)
@given(data=st.data())
def test_a_packet_like_an_earlier_one_means_what_it_says(data: st.DataObject) -> None:
    """A session knows the packets that a client repeats. It reads each of them as a new session does."""
    made = authenticated()
    number = data.draw(st.sampled_from([1, 126, 127, 128, 16_382, 2**31, 2**62]))
    get = client_frame(pb.GET, pb.Get(**ME, fetch_size=3, timeout=5, unit=2, eager=True))
    for _ in range(data.draw(st.integers(1, 6))):
        said = data.draw(st.sampled_from([0, 0, 0, 1, -1]))  # mostly the last batch
        form = data.draw(st.sampled_from([0, 0, 0, *range(len(_ack_frames(1)))]))
        ack = _ack_frames(max(1, number + said))[form]
        frames = data.draw(st.sampled_from([[ack, get], [get], [ack], [ack, ack], [ack, ack, get], [get, get]]))
        sent = b"".join(frames)
        size = data.draw(st.sampled_from([len(sent), len(sent), len(ack), 7]))
        chunks = [sent[at : at + size] for at in range(0, len(sent), size)]
        expected = [step for one in frames for step in converse(authenticated(), [one])]
        found: list[Request | bytes] = []
        for chunk in chunks:
            made.receive(chunk)
            assert made.waiting_bytes <= len(sent)
            while (step := made.next()) is not None:
                if isinstance(step, Reply):
                    found.append(b"".join(step.pieces))
                    continue
                found.append(step)
                if isinstance(step, Get):
                    number += 1
                    made.fetched(GetAnswer(number, Batch(PositionRange(0, "", lambda: (None, None)), (), 1, 1, 0)))
                else:
                    made.done()
        assert found == expected
        assert not made.waiting_bytes


def test_what_is_known_is_forgotten_with_the_rest() -> None:
    """A connection that is dropped carries out nothing more, whatever its packets are."""
    made = authenticated()
    get = client_frame(pb.GET, pb.Get(**ME))
    converse(made, [get])
    made.receive(get)
    assert made.waiting_bytes == len(get)
    made.discard()
    assert made.next() is None
    assert not made.waiting_bytes


def test_an_ack_of_nothing_is_ignored() -> None:
    """An ACK of batch -1, which an empty GET returns, gives no request and no bytes; batch 0 is an error."""
    made = authenticated()
    made.receive(client_frame(pb.CLIENTACK, pb.ClientAck(batch_id=-1, **ME)))
    made.receive(client_frame(pb.CLIENTACK, pb.ClientAck(batch_id=0, **ME)))
    ignored = made.next()
    assert isinstance(ignored, Reply)
    assert (ignored.pieces, ignored.size_bytes) == ((), 4)
    text = 'batchId should assign value. Ack: destination: "example"\nclient_id: "1001"\n'
    assert ack_of(made.next()) == (402, text)


def test_only_what_succeeds_is_silent() -> None:
    """A successful ACK has no reply; a failure names the Java class that clients know."""
    made = authenticated()
    expectations: list[tuple[Callable[[], Reply], tuple[int, str] | None]] = [
        (made.done, None),
        (
            lambda: made.failed(BatchNotFirst(31, 30)),
            (400, "com.alibaba.otter.canal.meta.exception.CanalMetaManagerException: batchId:31 is not the firstly:30"),
        ),
        (
            lambda: made.failed(NotRunningHere("example")),
            (400, f"{SERVER_EXCEPTION}: destination:example should start first"),
        ),
    ]  # fmt: skip
    for finish, expected in expectations:
        made.receive(client_frame(pb.CLIENTACK, pb.ClientAck(batch_id=4, **ME)))
        assert isinstance(made.next(), Acknowledge)
        reply = finish()
        if expected is None:
            assert reply.pieces == ()
            continue
        code, text = expected
        assert ack_of(reply) == (code, f"something goes wrong with channel: [here], exception: {text}\n")
        assert (reply.error_code, reply.destination, reply.packet_type) == (400, "example", "CLIENTACK")


def test_a_refused_peer_may_try_again() -> None:
    """After a refusal the session reads the next frame as an authentication again, whatever its type."""
    made = session(Door(opened=False))
    made.receive(client_frame(pb.CLIENTAUTHENTICATION, pb.ClientAuth(username="x")))
    assert ack_of(made.next()) == (400, "auth failed for user:x")
    made.receive(client_frame(pb.GET, pb.Get(**ME)))
    second = made.next()
    assert ack_of(second) == (400, "auth failed for user:example")
    assert isinstance(second, Reply)
    assert not second.last


def test_the_third_guess_is_the_last_one() -> None:
    """The third refusal is answered, and the connection ends behind it."""
    made = session(Door(opened=False))
    for last in (False, False, True):
        made.receive(client_frame(pb.CLIENTAUTHENTICATION, pb.ClientAuth(username="x")))
        refused = made.next()
        assert isinstance(refused, Reply)
        assert refused.last is last


def test_idle_limits_come_from_authentication() -> None:
    """Idle limits are in milliseconds; a value that is not positive means an hour."""
    made = session()
    made.receive(client_frame(pb.CLIENTAUTHENTICATION, pb.ClientAuth(net_read_timeout=500, net_write_timeout=-1)))
    made.next()
    assert made.idle_ms == (500, 3_600_000)


def test_subscribing_during_authentication() -> None:
    """A subscription in the authentication packet is acknowledged once; its failure ends the connection."""
    both = pb.ClientAuth(filter="f", **ME)
    made = session()
    made.receive(client_frame(pb.CLIENTAUTHENTICATION, both) + client_frame(pb.UNSUBSCRIPTION, pb.Unsub(**ME)))
    assert made.next() == Subscribe(ClientIdentity("example", 1001, "f"), during_authentication=True)
    assert ack_of(made.done()) == (0, "")
    assert made.next() == Unsubscribe(EXAMPLE)
    made = session()
    made.receive(client_frame(pb.CLIENTAUTHENTICATION, both))
    made.next()
    with pytest.raises(RemoteProtocolError):
        made.failed(NotRunningHere("example"))
    made = session()
    made.receive(client_frame(pb.CLIENTAUTHENTICATION, pb.ClientAuth(destination="d", client_id="abc")))
    with pytest.raises(RemoteProtocolError):
        made.next()


@pytest.mark.parametrize(("length", "known", "allowed"), [
    (65_536, False, True), (65_537, False, False), (-1, False, False),
    (1 << 20, True, True), ((1 << 20) + 1, True, False), (-1, True, False),
])  # fmt: skip
def test_frames_are_bounded(length: int, known: bool, allowed: bool) -> None:
    """A frame is limited to 64 KiB before authentication and to max_frame_bytes after it, by its length alone."""
    made = authenticated() if known else session()
    made.receive(length.to_bytes(4, "big", signed=True))
    if allowed:
        assert made.next() is None
        return
    with pytest.raises(RemoteProtocolError):
        made.next()


def test_replies_need_a_request() -> None:
    """A reply without a request raises LocalProtocolError."""
    with pytest.raises(LocalProtocolError):
        authenticated().done()


def test_a_peer_that_sends_ahead_without_end_is_stopped() -> None:
    """While a request is being handled, at most twice the largest frame may wait."""
    made = authenticated()
    made.receive(client_frame(pb.GET, pb.Get(**ME)))
    made.next()
    made.receive(b"x" * (2 << 20))
    with pytest.raises(RemoteProtocolError):
        made.receive(b"x" * 5)


def test_a_cursor_is_told_to_whom_asks_for_it_alone() -> None:
    """A client that does not ask for its cursor gets canal's bytes; one that asks gets the cursor without its trail."""
    other = LogPosition("bin.000007", 4, part=2, trail="long", origins="longer")
    cursor = LogPosition("bin.000001", 4, mark="spool a", trail="long", origins="longer", part=1, others=(other,))
    made = authenticated()
    made.receive(client_frame(pb.SUBSCRIPTION, pb.Sub(**ME)))
    assert made.next() == Subscribe(EXAMPLE)
    assert b"".join(made.subscribed(cursor).pieces) == packets.accepted()
    made.receive(client_frame(pb.SUBSCRIPTION, pb.Sub(**ME, tell_cursor=True)))
    assert made.next() == Subscribe(EXAMPLE, tell_cursor=True)
    told = pb.Ack.FromString(pb.Packet.FromString(b"".join(made.subscribed(cursor).pieces)[4:]).body).cursor
    found = LogPosition.from_json(told)
    assert (found, found.mark, found.trail, found.origins) == (cursor, "spool a", "", "")
    assert "long" not in told


def test_a_mark_comes_with_an_ack_and_is_bounded() -> None:
    """An ACK may carry a mark of at most 200 bytes."""
    made = authenticated()
    made.receive(client_frame(pb.CLIENTACK, pb.ClientAck(**ME, batch_id=3, mark="é" * 100)))
    assert made.next() == Acknowledge(EXAMPLE, 3, "é" * 100)
    made.done()
    made.receive(client_frame(pb.CLIENTACK, pb.ClientAck(**ME, batch_id=3, mark="é" * 100 + "x")))
    assert ack_of(made.next()) == (400, "the mark of the acknowledgement has 201 bytes; at most 200 are allowed")


def test_the_error_text_of_a_long_request_is_not_made_of_the_whole_request() -> None:
    """Escapes are made one character at a time: for 16 MiB that took seconds, in which no other client was served."""
    packet = pb.Packet(type=pb.SUBSCRIPTION, body=pb.Sub(filter="\u00e9" * (1 << 20)).SerializeToString())
    tracemalloc.start()
    try:
        with pytest.raises(packets.Refusal, match="destination or clientId is null") as caught:
            packets.read_request(packet)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(caught.value).endswith("…")
    assert most < 8 << 20


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ({"gtid": ":".join(["uuid", *map(str, range(1, 4003, 2))])}, "2001 sources and intervals"),
        ({"gtid": ",".join(f"{number}-1-1" for number in range(2002))}, "2001 sources and intervals"),
        ({"gtid": "u" * 65_537}, "65537 characters"),
        ({"journal": "a.000001", "end_gtid": "u" * 65_537}, "65537 characters"),
        ({"timestamp": 253_402_300_800_000}, "after the year 9999"),
    ],
)
def test_a_private_read_with_a_place_that_nobody_needs_is_refused(place: dict[str, Any], reason: str) -> None:
    """A long GTID set kept the node for minutes. The read of a time without a text left no line in the audit."""
    made = authenticated()
    made.receive(client_frame(pb.DUMP, pb.Dump(**ME, **place)))
    code, text = ack_of(made.next())
    assert code == 400
    assert reason in text


def test_the_last_place_that_is_allowed_has_a_text() -> None:
    """The audit log shows it."""
    made = authenticated()
    made.receive(client_frame(pb.DUMP, pb.Dump(**ME, timestamp=packets.TIME_MOST_MS)))
    request = made.next()
    assert isinstance(request, packets.ReadFrom)
    assert str(request.place) == "time:9999-12-31T23:59:59.999+00:00"
