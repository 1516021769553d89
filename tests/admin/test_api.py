"""The status endpoint, asked with bytes of HTTP."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import pytest
from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.error import CannotListenError
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.web.resource import Resource

from canal_ha.accounts.account import Account, AccountRole, Accounts
from canal_ha.admin.actions import actions_of
from canal_ha.admin.api import StatusApi
from canal_ha.admin.document import NodeFacts, OwnStatus
from canal_ha.admin.listening import listen, own_names, port_of
from canal_ha.admin.routes import SNAPSHOT_BODY_MOST, body_most
from canal_ha.config.listeners import is_loopback
from canal_ha.errors import LocalProtocolError, NotRunningHere, NotSubscribed
from canal_ha.instance.status import InstanceStatus, StreamStatus
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import ANYTHING, ColumnRules, Within
from canal_ha.model.snapshot import SnapshotRequest, SnapshotState, changed
from canal_ha.server.audit import Audit
from canal_ha.server.entrance import Entrance
from canal_ha.server.site import BODY_MOST_BYTES, QuietSite

OPEN = Accounts()
TOKEN = "written at the start"
AS_OPERATOR = f"Authorization: Bearer {TOKEN}\r\n"
OPENED = Entrance(Accounts, Clock())
FACTS = NodeFacts(address="10.0.0.1:11111", kernel="compiled", started_at=1_500_000_000.0)
SECRET = "of another client"
INSTANCE = InstanceStatus(
    destination="example",
    source_address="db:3306",
    newest=LogPosition("mysql-bin.000004", 900),
    streams=(StreamStatus(1001, "", "open", cursor=LogPosition("mysql-bin.000004", 491), batches=(1, 2)),),
)


WITHIN: list[Within] = []  # of the accounts that asked for snapshots


def instances() -> Sequence[InstanceStatus]:
    return [INSTANCE]


def ask(
    request: str,
    *,
    bind: str = "127.0.0.1",
    peer: str = "127.0.0.1",
    accounts: Accounts = OPEN,
    write: Callable[[bytes], None] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """Send an HTTP request through Twisted's own parser, and return (code, headers, body)."""
    entrance = Entrance(lambda: accounts, Clock(), Audit(Clock(), write))
    entrance.operator_token = sha256(TOKEN.encode()).digest()
    answers = is_loopback if is_loopback(bind) else own_names(bind, "canal.example")
    api = StatusApi(
        OwnStatus(FACTS, instances), entrance=entrance, answers=answers, actions=actions_of(switched, snapshotted)
    )
    site: Any = QuietSite(api, entrance, body_most=body_most)
    site.startFactory()
    protocol: Any = site.buildProtocol(None)
    transport = StringTransport(peerAddress=IPv4Address("TCP", peer, 54321))
    protocol.makeConnection(transport)
    protocol.dataReceived(request.encode())
    head, _, body = transport.value().partition(b"\r\n\r\n")
    protocol.connectionLost(None)
    site.stopFactory()
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), {line.split(": ")[0].lower(): line.split(": ")[1] for line in lines}, body


async def snapshotted(destination: str, client_id: int, request: SnapshotRequest, within: Within) -> SnapshotState:
    WITHIN.append(within)
    if destination != "example":
        raise NotRunningHere(destination)
    if client_id == 7:
        raise NotSubscribed(destination, client_id)
    if client_id == 8:
        f"{SECRET}\ud800".encode()
    return changed("", request, "id1", 5)


async def switched(destination: str, to: str) -> str:
    if destination != "example":
        raise NotRunningHere(destination)
    if to == "standby":
        raise LocalProtocolError("example has no standby")
    return "db:3306"


def post(
    to: str, destination: str = "example", content_type: str = "application/json", login: str = AS_OPERATOR
) -> str:
    body = json.dumps({"to": to})
    return (
        f"POST /api/v1/destinations/{destination}/source HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{login}"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )


def post_snapshot(body: object, destination: str = "example") -> str:
    text = json.dumps(body)
    return (
        f"POST /api/v1/destinations/{destination}/snapshot HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"{AS_OPERATOR}Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}"
    )


def test_a_snapshot_is_started_over_http() -> None:
    """The answer is its state. What cannot be a snapshot is refused with the reason."""
    start = {"action": "start", "client_id": 1001, "tables": ["shop.orders"], "where": {"shop.orders": "id < 5"}}
    code, _, body = ask(post_snapshot(start))
    assert code == 200
    state = json.loads(body)["snapshot"]
    assert (state["phase"], state["tables"], state["where"]) == ("running", ["shop.orders"], {"shop.orders": "id < 5"})
    assert not state["without_key"]
    assert json.loads(ask(post_snapshot({**start, "without_key": True}))[2])["snapshot"]["without_key"]
    assert (state["connections"], state["rows_per_s_most"]) == (0, 0)
    state = json.loads(ask(post_snapshot({**start, "connections": 16, "rows_per_s_most": 500}))[2])["snapshot"]
    assert (state["connections"], state["rows_per_s_most"]) == (16, 500)
    assert ask(post_snapshot(start, "elsewhere"))[0] == 404
    for wrong, reason in (
        ({**start, "tables": []}, "name at least one table"),
        ({**start, "tables": ["orders"]}, "orders is no table: write schema.table"),
        ({**start, "where": {"shop.other": "1"}}, "a condition for shop.other"),
        ({"action": "pause", "client_id": 1001}, "no snapshot: start one"),
        ({**start, "action": "pause"}, "pause does not take tables, where; it takes nothing"),
        ({**start, "client_id": 7}, "client id 7 has not subscribed to example: start the client once"),
    ):
        code, _, body = ask(post_snapshot(wrong))
        assert code == 409
        assert reason in json.loads(body)["error"]


@pytest.mark.parametrize(("client_id", "code"), [(1001, 200), (1002, 403)])
def test_an_admin_of_one_client_id_cannot_read_tables_into_the_stream_of_another(client_id: int, code: int) -> None:
    """The account's client ids limit its snapshots too; the refusal is in the audit."""
    written: list[bytes] = []
    hashed = sha256(TOKEN.encode()).digest()
    admin = Account(
        "part",
        roles=frozenset(AccountRole),
        destinations=("example",),
        client_ids=((1001, 1001),),
        tokens=(hashed,),
    )
    start = {"action": "start", "client_id": client_id, "tables": ["shop.orders"]}
    found, _, body = ask(post_snapshot(start), accounts=Accounts([admin]), write=written.append)
    assert found == code
    assert (b"no right on client id 1002" in body) == (code == 403)
    assert json.loads(written[-1])["result"] == ("ok" if code == 200 else "refused")


def test_a_snapshot_is_asked_for_with_the_limits_of_the_account_that_asks() -> None:
    """The client's account may see more, and the progress tells who asks how many rows there are."""
    start = {"action": "start", "client_id": 1001, "tables": ["shop.orders"]}
    hashed = sha256(TOKEN.encode()).digest()
    mask = ColumnRules(mask=r"shop\.users:email")
    roles = frozenset({AccountRole.ADMIN})
    ops = Account("ops", roles=roles, destinations=("*",), filter=r"shop\..*", privacy=mask, tokens=(hashed,))
    WITHIN.clear()
    assert ask(post_snapshot(start), accounts=Accounts([ops]))[0] == 200
    assert ask(post_snapshot(start))[0] == 200
    assert [Within(r"shop\..*", mask), ANYTHING] == WITHIN


def test_the_audit_has_the_conditions_of_a_snapshot() -> None:
    """They choose what is read as much as the tables do."""
    written: list[bytes] = []
    start = {"action": "start", "client_id": 1001, "tables": ["shop.orders"], "where": {"shop.orders": "id < 5"}}
    assert ask(post_snapshot(start), write=written.append)[0] == 200
    line = json.loads(written[-1])
    details = line["details"]
    assert (details["action"], line["client_id"]) == ("start", 1001)
    assert (details["tables"], details["where"]) == ('["shop.orders"]', '{"shop.orders": "id < 5"}')


def test_the_audit_tells_long_conditions_apart() -> None:
    """It had their first 500 characters alone, and the same line for both."""
    written: list[bytes] = []
    texts = []
    for end in ("1", "2"):
        where = {"shop.orders": f"id IN ({'7, ' * 900}{end})"}
        start = {"action": "start", "client_id": 1001, "tables": ["shop.orders"], "where": where}
        assert ask(post_snapshot(start), write=written.append)[0] == 200
        texts.append(json.dumps(where))
    found = [line["details"] for line in map(json.loads, written) if line["action"] == "snapshot"]
    assert found[0]["where"] == found[1]["where"]
    assert [each["where_sha256"] for each in found] == [sha256(text.encode()).hexdigest() for text in texts]


@pytest.mark.parametrize(
    "more", [{"tables": ["shop.\ud800"]}, {"where": {"shop.orders": "v = '\udcfc'"}}, {"\udcfc": 1}]
)
def test_a_text_that_cannot_be_stored_does_not_reach_the_cursors(more: dict[str, object]) -> None:
    """JSON can hold half a surrogate pair. No cursor of the destination could be written any more."""
    begun = len(WITHIN)
    body = {"action": "start", "client_id": 1001, "tables": ["shop.orders"], **more}
    code, _, answer = ask(post_snapshot(body))
    assert code == 400
    assert "half a surrogate pair" in json.loads(answer)["error"]
    assert len(WITHIN) == begun


def test_an_unexpected_error_of_an_action_tells_nothing_about_other_clients(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The answer had the repr of the error, here with the states of all clients. The log has the reason."""
    start = {"action": "start", "client_id": 8, "tables": ["shop.orders"]}
    code, _, body = ask(post_snapshot(start))
    assert code == 500
    assert json.loads(body)["error"] == "the action failed; the log of the node has admin.action_broken"
    assert "UnicodeEncodeError" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "start",
        {},
        {"action": "start", "tables": ["a.b"]},
        {"action": "start", "client_id": True, "tables": ["a.b"]},
        {"action": "start", "client_id": 40_000, "tables": ["a.b"]},
        {"action": "begin", "client_id": 1, "tables": ["a.b"]},
        {"action": ["start"], "client_id": 1, "tables": ["a.b"]},
        {"action": "start", "client_id": 1, "tables": "a.b"},
        {"action": "start", "client_id": 1, "tables": [1]},
        {"action": "start", "client_id": 1, "tables": ["a.b"], "where": ["x"]},
        {"action": "start", "client_id": 1, "tables": ["a.b"], "where": {"a.b": 1}},
        {"action": "start", "client_id": 1, "tables": ["a.b"], "without_key": 1},
        {"action": "start", "client_id": 1, "tables": ["a.b"], "rows_per_s_most": -1},
        {"action": "start", "client_id": 1, "tables": ["a.b"], "connections": 17},
        {"action": "start", "client_id": 1, "tables": ["a.b"], "connections": "4"},
        {"action": "start", "client_id": 1, "tables": ["a.b"], "rows_per_s_most": 0.5},
    ],
)
def test_a_body_that_asks_for_no_snapshot_says_what_would(body: object) -> None:
    """Every other JSON value is answered with an example."""
    code, _, answer = ask(post_snapshot(body))
    assert code == 400
    assert '"action": "start"' in json.loads(answer)["error"]


def test_a_misspelled_key_is_named() -> None:
    """The body was taken without its condition, and the whole table was read."""
    body = {"action": "start", "client_id": 1001, "tables": ["shop.orders"], "whre": {"shop.orders": "id < 5"}}
    code, _, answer = ask(post_snapshot(body))
    assert code == 400
    assert json.loads(answer)["error"] == (
        "unknown: whre; the keys are action, client_id, connections, leave_out, rows_per_s_most, tables, where,"
        " without_key"
    )


def get(path: str = "/api/v1/status", host: str = "127.0.0.1:8089", method: str = "GET") -> str:
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"


def test_the_status_is_json() -> None:
    """The document has the node and every destination with its streams, under the names of the status types."""
    code, headers, body = ask(get())
    assert code == 200
    assert headers["content-type"] == "application/json"
    assert headers["server"] == "canal-ha"
    document = json.loads(body)
    assert document["node"]["address"] == "10.0.0.1:11111"
    assert document["node"]["kernel"] == "compiled"
    assert document["node"]["started"] == "2017-07-14T02:40:00+00:00"
    assert document["node"]["uptime_s"] > 0
    (destination,) = document["destinations"]
    assert (destination["destination"], destination["source_address"]) == ("example", "db:3306")
    assert destination["newest"]["offset"] == 900
    (stream,) = destination["streams"]
    assert (stream["client_id"], stream["state"], stream["batches"]) == (1001, "open", [1, 2])
    assert (stream["cursor"]["journal"], stream["cursor"]["offset"]) == ("mysql-bin.000004", 491)


def test_nothing_secret() -> None:
    """No type that the answer is made of has a field for a password."""
    names = set(INSTANCE.__slots__) | set(INSTANCE.streams[0].__slots__) | set(FACTS.__slots__)
    assert not [name for name in names if "pass" in name or "secret" in name or "auth" in name]


@pytest.mark.parametrize("path", ["/", "/api/v1/status/", "/api/v1/status/example", "/api/v1/statuses", "/%2e%2e/x"])
def test_unknown_paths(path: str) -> None:
    """Any other path is 404, in JSON."""
    code, headers, body = ask(get(path))
    assert (code, headers["content-type"]) == (404, "application/json")
    assert "error" in json.loads(body)


def test_only_reading() -> None:
    """HEAD has no body, and POST is 405."""
    assert ask(get(method="HEAD"))[::2] == (200, b"")
    code, headers, body = ask(get(method="POST"))
    assert (code, headers["allow"]) == (405, "GET, HEAD")
    assert "error" in json.loads(body)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8089", "127.0.0.1", "127.0.0.1:1", "[::1]:8089"])
def test_local_names_are_answered(host: str) -> None:
    """The loopback names of this machine are answered, with any port."""
    assert ask(get(host=host))[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:8089", "localhost.evil:8089"])
def test_other_names_are_refused_on_loopback(host: str) -> None:
    """On loopback, the name of a page that re-bound it to 127.0.0.1 is refused."""
    code, _, body = ask(get(host=host))
    assert code == 403
    assert b"destinations" not in body


@pytest.mark.parametrize(("host", "code"), [
    ("10.0.0.1:8089", 200), ("[2001:db8::1]:8089", 200), ("localhost", 200), ("canal.example:8089", 200),
    ("CANAL.example", 200), ("evil.example", 403), ("10.0.0.1.evil.example", 403), ("", 403),
])  # fmt: skip
def test_an_open_endpoint_answers_to_its_own_names(host: str, code: int) -> None:
    """Beyond loopback, addresses and the machine's names are answered; the name of a rebinding page is refused."""
    assert ask(get(host=host), bind="0.0.0.0")[0] == code


def test_a_taken_port_is_replaced() -> None:
    """When the port is taken by another node of this host, any free port is used."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        wanted = taken.getsockname()[1]
        listening = listen(reactor, "localhost", wanted, Resource(), OPENED)
        assert listening is not None
        assert port_of(listening) != wanted
        listening.stopListening()  # type: ignore[misc] # zope interface


def test_the_port_can_be_off_and_the_address_must_exist() -> None:
    """A negative port serves nothing; an address of another machine is an error."""
    assert listen(reactor, "127.0.0.1", -1, Resource(), OPENED) is None
    with pytest.raises(CannotListenError):
        listen(reactor, "192.0.2.1", 0, Resource(), OPENED)


def test_a_switch_needs_the_operators_token() -> None:
    """The answer has the new address, or the reason of a refusal. Without the token, web forms and GET are refused."""
    assert ask(post("other"))[::2] == (200, b'{"destination": "example", "source": "db:3306"}\n')
    for request, code, reason in (
        (post("standby"), 409, b"no standby"),
        (post("other", "elsewhere"), 404, b"does not run on this node"),
        (post("nowhere"), 400, b"master, standby, other"),
        (post("other", content_type="text/plain"), 400, b"application/json"),
        (get("/api/v1/destinations/example/source"), 405, b"only POST"),
        (get("/api/v1/destinations/example/binlog"), 404, b"not found"),
    ):
        answer = ask(request)
        assert answer[0] == code
        assert reason in answer[2]
    for peer in ("127.0.0.1", "10.0.0.9"):
        assert ask(post("other", login=""), bind="0.0.0.0", peer=peer)[0] == 403


@pytest.mark.parametrize(("request_text", "code", "action", "reason"), [
    (get(), 401, "login", "has no login"),
    (get("/api/v1/nothing") , 404, "request", "not found; there is /api/v1/status: GET /api/v1/nothing"),
    (get(method="TRACE"), 405, "request", "only GET: TRACE /api/v1/status"),
    (get(host="evil.example"), 403, "request", "names another machine"),
    (post("nowhere"), 400, "switch", "master, standby, other"),
    (post("other").partition("Content-Length")[0] + "Content-Length: 4000\r\n\r\n" + "[" * 4000, 400,
     "switch", "send a JSON object"),
])  # fmt: skip
def test_each_refused_request_is_in_the_audit(request_text: str, code: int, action: str, reason: str) -> None:
    """A line says what a stranger, or an account, asked for and did not get."""
    written: list[bytes] = []
    hashed = sha256(TOKEN.encode()).digest()
    operator = Account("boss", roles=frozenset(AccountRole), destinations=("*",), tokens=(hashed,))
    if code in (404, 405):
        request_text = request_text.replace("\r\n", f"\r\n{AS_OPERATOR}", 1)
    assert ask(request_text, accounts=Accounts([operator]), write=written.append)[0] == code
    line = json.loads(written[-1])
    assert (line["action"], line["result"], line["address"]) == (action, "refused", "127.0.0.1")
    assert reason in line["details"]["reason"]


@pytest.mark.parametrize("body", ["Content-Length: 999999999\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n10000\r\n"])
def test_an_endless_body_is_refused_and_fills_no_disk(body: str) -> None:
    """A body above the limit is answered with 413 before it is complete, because strangers can reach the port."""
    request = f"POST /api/v1/destinations/example/source HTTP/1.1\r\nHost: localhost\r\n{body}"
    code, _, _ = ask(request + " " * (BODY_MOST_BYTES + 1))
    assert code == 413


def test_a_length_of_thousands_of_digits_is_refused_without_a_traceback_in_the_log() -> None:
    """Strangers could fill the log: each such request was an unhandled error."""
    code, _, _ = ask(f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {'9' * 5000}\r\nX: y\r\n\r\n")
    assert code == 400


def test_blanks_behind_a_small_body_are_no_way_around_the_limit() -> None:
    """The limit is on the whole body, including blanks behind the JSON."""
    body = '{"to": "master"}' + " " * (BODY_MOST_BYTES + 1)
    request = post("master").partition("Content-Length")[0] + f"Content-Length: {len(body)}\r\n\r\n{body}"
    code, _, text = ask(request)
    assert code == 413
    assert json.loads(text)["error"] == f"the body has more than {BODY_MOST_BYTES} bytes"


def test_a_snapshot_is_asked_for_as_many_tables_as_one_may_have() -> None:
    """Beyond 32 KiB the answer was 413 without a reason, at some 1,000 tables. Other actions keep that limit."""
    tables = [f"s.t{number}" for number in range(4000)]
    start = {"action": "start", "client_id": 1001, "tables": tables, "where": {tables[0]: f"id < {'9' * 3000}"}}
    code, _, body = ask(post_snapshot(start))
    assert (code, len(json.loads(body)["snapshot"]["tables"])) == (200, 4000)
    code, _, body = ask(post_snapshot({**start, "tables": [f"s.t{number}" for number in range(5001)], "where": {}}))
    assert (code, json.loads(body)["error"]) == (409, "5001 tables; a snapshot takes at most 5000 at a time")
    code, headers, body = ask(post_snapshot({**start, "tables": ["s." + "t" * SNAPSHOT_BODY_MOST]}))
    assert (code, headers["content-type"]) == (413, "application/json")
    assert json.loads(body)["error"] == f"the body has more than {SNAPSHOT_BODY_MOST} bytes"
