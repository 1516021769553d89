"""Rights that an accounts file takes back while a connection reads."""

from __future__ import annotations

import pytest

from canal_ha.accounts.account import Account, AccountRole, Accounts
from canal_ha.config.model import BatchMode
from canal_ha.model.privacy import ColumnRules
from canal_ha.wire import scramble
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from tests.server.harness import Served, entries_segment, on_reactor, transaction
from tests.server.raw_client import RawClient
from tests.waiting import until

PASSWORD = "geheim"
ITEMS = {"batch_mode": BatchMode.ITEMSIZE}
RULES = ColumnRules(drop=r"shop\.users:email")


def account(*destinations: str, privacy: ColumnRules | None = None) -> Accounts:
    """Return one account that may read these destinations."""
    secrets, roles = (scramble.secret_of(PASSWORD),), frozenset({AccountRole.READ})
    made = Account("billing", secrets, roles=roles, destinations=destinations, privacy=privacy or ColumnRules())
    return Accounts([made])


def logged_in(served: Served) -> RawClient:
    client = RawClient(served, authenticate=False)
    token = scramble.token(PASSWORD, client.seed)
    client.write(pb.CLIENTAUTHENTICATION, pb.ClientAuth(username="billing", password=token))
    assert client.refusal() == (0, "")
    return client


def waits_privately(served: Served) -> bool:
    running = served.embedded.running("example")
    return running is not None and all(read.silent_s == 0.0 for read in running._reads)


def take_over(served: Served, accounts: Accounts) -> None:
    """Replace the accounts, after the requests that the reactor is carrying out."""

    async def replaced() -> None:
        served.accounts = accounts

    on_reactor(replaced)


@pytest.mark.parametrize(
    ("after", "destination", "reason"),
    [
        (account("*", privacy=RULES), "example", "other tables or columns"),
        (account("other"), "other", "no right on destination:example"),
        (account("other"), "example", "no right on destination:example"),
    ],
    ids=["a column", "the destination", "the destination, without another name"],
)
@pytest.mark.parametrize("waits", [False, True], ids=["next GET", "waiting GET"])
def test_a_private_read_ends_with_the_rights_that_it_began_with(
    after: Accounts, destination: str, reason: str, waits: bool
) -> None:
    """A GET that waits, and the next one, are refused, whatever destination they name."""
    with Served(config=ITEMS) as served:
        served.accounts = account("*")
        with logged_in(served) as client:
            client.write(pb.DUMP, pb.Dump(journal="mysql-bin.000001", position=4, **client.names))
            assert client.refusal() == (0, "")
            client.names["destination"] = destination
            if waits:
                client.get(timeout=0, size=1)
                until(lambda: waits_privately(served), what="a GET that waits")
            take_over(served, after)
            served.push(entries_segment(transaction(1)))
            if not waits:
                client.get(timeout=1000)
            code, text = client.refusal()
            assert (code, reason in text) == (403, True), text
            client.names["destination"] = "example"
            client.get(timeout=1000)
            assert client.refusal()[0] != 0


def test_a_get_that_waited_brings_no_column_that_was_taken_back() -> None:
    """The client has to subscribe again, as for its next GET."""
    with Served(config=ITEMS) as served:
        served.accounts = account("*")
        with logged_in(served) as client:
            client.subscribe()
            assert client.refusal() == (0, "")
            client.get(timeout=0, size=1)
            until(lambda: served.service.readers("example"), what="a GET that waits")
            take_over(served, account("*", privacy=RULES))
            served.push(entries_segment(transaction(1)))
            assert "should subscribe first" in client.refusal()[1]
            client.subscribe()
            assert client.refusal() == (0, "")
            served.push(entries_segment(transaction(1)))
            client.get(timeout=1000)
            assert client.fetched().batch_id > 0


def test_the_node_remembers_a_client_from_the_end_of_its_connection_on() -> None:
    """Made-up names of its neighbours do not keep it out for a day from then on."""
    with Served() as served:
        served.accounts = account("*")
        client = logged_in(served)
        lockout = served.entrance._lockout
        (known,) = lockout._known.values()
        began = known.seen_at
        client.sock.close()
        until(lambda: known.seen_at > began)


def test_a_refused_subscription_leaves_no_long_filter_on_its_connection() -> None:
    """It kept up to 16 MiB, with or without an account, while the client sent nothing more."""
    with Served() as served:
        served.accounts = account("*")
        client = logged_in(served)
        client.subscribe("x" * 1_000_000)
        assert "table filter of 1000000 bytes" in client.refusal()[1]
        (connection,) = served.service._open
        kept = (connection._conversation.subscribed, *connection._visitor._last[:2])
        assert all(each is None or len(each.filter) < 5000 for each in kept)
        client.sock.close()
