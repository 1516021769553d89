"""Bytes that canal's own classes produce (docs/protocol.md#vectors)."""

import pytest

from canal_ha.errors import RemoteProtocolError
from canal_ha.model.batch import Batch, GetAnswer, PositionRange
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.wire import messages, packets, scramble
from canal_ha.wire.client_session import ClientSession

SEED = bytes(range(1, 9))
ME = ClientIdentity("example", 1001)
SECRET = bytes.fromhex("e3619321c1a937c46a0d8bd1dac39f93b27d4458")


def greeted() -> ClientSession:
    """Return a client session that has read HANDSHAKE with SEED."""
    session = ClientSession()
    session.receive(packets.handshake(SEED))
    session.next()
    return session


def framed(text: str) -> bytes:
    packet = bytes.fromhex(text)
    return len(packet).to_bytes(4, "big") + packet


def test_server_packets() -> None:
    """HANDSHAKE, both ACKs and the empty MESSAGES have canal's bytes."""
    assert packets.handshake(SEED) == framed("100118012a0a12080102030405060708")
    assert packets.accepted() == framed("10011803")
    assert packets.refused(400, "x") == framed("100118032a06089003120178")
    assert b"".join(messages.encode(GetAnswer(-1))) == framed("100118072a0b08ffffffffffffffffff01")


def test_authentication_packets() -> None:
    """Authentication has canal's bytes, with a user and a password and without either."""
    with_password = (
        "18022a3b0a0563616e616c1228376465343436393064386535333738326362363138303461323435356332383461336262666230"
        "361880dddb012080dddb01"
    )
    assert greeted().authenticate("canal", "canal", 3_600_000) == framed(with_password)
    assert greeted().authenticate("", None, 3_600_000) == framed("18022a0a1880dddb012080dddb01")


def test_request_packets() -> None:
    """Every request has canal's bytes; a batch id of 0 is absent, and a timeout of -1 takes ten bytes."""
    session = greeted()
    filtered = ClientIdentity("example", 1001, r".*\..*")
    assert session.subscribe(ME) == framed("18042a0f0a076578616d706c65120431303031")
    assert session.subscribe(filtered) == framed("18042a170a076578616d706c651204313030313a062e2a5c2e2e2a")
    immediate = "18062a210a076578616d706c6512043130303118e80720ffffffffffffffffff0128023000"
    assert session.get(ME, 1000, -1) == framed(immediate)
    assert session.get(ME, 1000, 1000) == framed("18062a190a076578616d706c6512043130303118e80720e80728023000")
    assert session.ack(ME, 1) == framed("18082a110a076578616d706c651204313030311801")
    assert session.rollback(ME) == framed("180c2a0f0a076578616d706c65120431303031")


def test_messages_keep_the_frames_as_they_are() -> None:
    """MESSAGES has the batch id first, then the unchanged views; reading gives the same entries."""
    views = (memoryview(b"\x12\x03abc"), memoryview(b"\x12\x01d\x12\x00"))
    here = LogPosition("b.1", 4)
    batch = Batch(PositionRange(0, "", lambda: (here, None)), views, entries=3, rows=0, size_bytes=10)
    head, *rest = messages.encode(GetAnswer(300, batch))
    assert rest == list(views)
    body = "08ac02" + "1203616263" + "120164" + "1200"
    assert b"".join([head, *rest]) == framed("18072a0d" + body)
    fetched = messages.decode(bytes.fromhex(body))
    assert (fetched.batch_id, bytes(fetched.frames)) == (300, b"".join(views))
    assert fetched.entries() == (b"abc", b"d", b"")


def test_messages_in_another_order_are_read_too() -> None:
    """MESSAGES with entries before the batch id, or with an unknown field, is read."""
    fetched = messages.decode(bytes.fromhex("120161" + "7801" + "0805" + "120162"))
    assert (fetched.batch_id, fetched.entries()) == (5, (b"a", b"b"))
    assert bytes(fetched.frames) == b"\x12\x01a\x12\x01b"


def test_token() -> None:
    """The token is the vector of docs/protocol.md#scramble; the secrets of canal's default passwords are canal's."""
    assert scramble.token("canal", SEED) == b"7de44690d8e53782cb61804a2455c284a3bbfb06"
    assert scramble.secret_of("canal") == SECRET
    assert scramble.secret_of("admin").hex() == "4acfe3202a5ff5cf467898fc58aab1d615029441"


def test_a_token_proves_its_password() -> None:
    """A token of the password is accepted in either case and with further digits; one of another password is not."""
    good, bad = scramble.token("canal", SEED), scramble.token("wrong", SEED)
    assert scramble.proves(SECRET, good, SEED)
    assert scramble.proves(SECRET, good.upper() + b"00", SEED)
    assert not scramble.proves(SECRET, bad, SEED)


@pytest.mark.parametrize("password", [b"canal", b"7de4", b"zz" * 20, b" " + scramble.token("canal", SEED)])
def test_malformed_tokens_end_the_connection(password: bytes) -> None:
    """A token that is not hex or too short raises RemoteProtocolError, which closes the connection."""
    with pytest.raises(RemoteProtocolError):
        scramble.proves(SECRET, password, SEED)
