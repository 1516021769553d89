"""The error texts that clients search for, over TCP, as docs/protocol.md#errors lists them."""

from __future__ import annotations

import re

from canal_ha.model.segment import EntryKind
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from tests.segments import Item, segment
from tests.server.harness import Served
from tests.server.raw_client import RawClient

GENERIC = re.compile(
    r"something goes wrong with channel: \[id: 0x[0-9a-f]{8}, /127\.0\.0\.1:\d+ => /127\.0\.0\.1:\d+\],"
    r" exception: ([\w.]+): (.*)\n",
    re.DOTALL,
)
SERVER = "com.alibaba.otter.canal.server.exception.CanalServerException"
META = "com.alibaba.otter.canal.meta.exception.CanalMetaManagerException"


def generic(client: RawClient) -> tuple[str, str]:
    """Check that the next packet is an error 400, and return the class and text in it."""
    code, text = client.refusal()
    found = GENERIC.fullmatch(text)
    assert code == 400
    assert found, text
    return found[1], found[2]


def test_every_text() -> None:
    """Each error of docs/protocol.md#requests that a client can cause has its text."""
    with Served() as served, RawClient(served) as client:
        client.get()
        never = "ClientIdentity:ClientIdentity[destination=example,clientId=1001,filter=<null>] should subscribe first"
        assert generic(client) == (SERVER, never)
        client.ack(7)
        assert generic(client) == (SERVER, never)
        client.subscribe()
        assert client.refusal() == (0, "")
        client.ack(7)
        assert generic(client) == (SERVER, "ack error , clientId:1001 batchId:7 is not exist , please check")
        client.rollback(7)
        assert generic(client) == (SERVER, "rollback error, clientId:1001 batchId:7 is not exist , please check")
        for place in (100, 200):
            served.push(segment([Item(place), Item(place + 50, EntryKind.END)]))
            client.get()
            assert client.fetched().batch_id == place // 100
        client.ack(2)
        assert generic(client) == (META, "batchId:2 is not the firstly:1")
        client.rollback(2)
        assert generic(client) == (META, "batchId:2 is not the firstly:1")
        client.ack(0)
        code, text = client.refusal()
        assert (code, text.partition(":")[0]) == (402, "batchId should assign value. Ack")
        client.names["destination"] = "nope"
        for request in (client.subscribe, client.get, client.rollback):
            request()
            assert generic(client) == (SERVER, "destination:nope should start first")
        client.write(pb.UNSUBSCRIPTION, pb.Unsub(**client.names))
        assert generic(client) == (SERVER, "destination:nope should start first")  # canal: can't find destination:nope
        client.names["destination"] = ""
        client.get()
        code, text = client.refusal()
        assert (code, text.partition(":")[0]) == (401, "destination or clientId is null. Get")
        client.write(pb.HEARTBEAT, pb.HeartBeat())
        assert client.refusal() == (400, "packet type: HEARTBEAT is NOT supported!")


def test_a_wrong_password() -> None:
    """After a wrong password, the connection stays open for another try."""
    with Served(user="canal", passwd="00" * 20) as served, RawClient(served, authenticate=False) as client:
        for _ in range(2):
            client.write(pb.CLIENTAUTHENTICATION, pb.ClientAuth(username="canal", password=b"0" * 40))
            assert client.refusal() == (400, "auth failed for user:canal")
