"""Who a peer is, and how guessing ends."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from functools import partial
from hashlib import sha256
from sys import getsizeof

import pytest
from twisted.internet.task import Clock

from canal_ha.accounts import gate
from canal_ha.accounts.account import ANYBODY, NAME_CHARACTERS, OPERATOR, Account, AccountRole, Accounts
from canal_ha.accounts.lockout import FREE_FAILURES, KNOWN_FOR_S, LONGEST_SHARED_WAIT_S, NAMES_KEPT
from canal_ha.accounts.parse import of_properties
from canal_ha.errors import Busy, LoginRefused, NotAllowed, RemoteProtocolError
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.privacy import Within
from canal_ha.server.audit import Audit
from canal_ha.server.entrance import Entrance, Visitor
from canal_ha.wire import scramble

SEED = bytes(range(8))
FAR = "/10.0.0.9"


def visitor(*accounts: Account, certified: tuple[str, ...] = ()) -> Visitor:
    made = Accounts(accounts)
    return Visitor(Entrance(lambda: made, Clock()), FAR, lambda: certified)


def token(password: str) -> bytes:
    return scramble.token(password, SEED)


def reader(name: str, *passwords: str, filter: str = "", destinations: tuple[str, ...] = ("*",)) -> Account:
    secrets = tuple(map(scramble.secret_of, passwords))
    return Account(name, secrets, frozenset({AccountRole.READ}), destinations, filter=filter)


def test_who_may_connect() -> None:
    """Names and passwords are accepted as the table of docs/protocol.md#authentication says."""
    secret = scramble.secret_of("canal").hex()
    visitor().log_in("x", b"not hex", SEED)
    any_name = visitor(*of_properties("", secret))
    any_name.log_in("x", token("canal"), SEED)
    one_name = visitor(*of_properties("canal", secret))
    one_name.log_in("canal", token("canal"), SEED)
    for guard, name, password in (
        (any_name, "x", token("wrong")),
        (any_name, "x", b""),
        (one_name, "canal", token("wrong")),
        (one_name, "nobody", b"not hex"),
    ):
        with pytest.raises(LoginRefused, match=f"auth failed for user:{name}"):
            guard.log_in(name, password, SEED)


def test_either_of_two_passwords_logs_in() -> None:
    """While a password is changed, the old one and the new one are valid."""
    both = visitor(reader("shop", "old", "new"))
    for password in ("old", "new"):
        both.log_in("shop", token(password), SEED)
    with pytest.raises(LoginRefused):
        both.log_in("shop", token("older"), SEED)


def test_a_certificate_logs_in_to_the_account_that_it_names() -> None:
    """Without a user name, or with the same one, no password is needed; another name needs its own password."""
    made = visitor(reader("shop"), reader("other", "pw"), certified=("nobody", "shop"))
    made.log_in("", b"", SEED)
    assert made.account == "shop"
    made.log_in("shop", b"", SEED)
    with pytest.raises(LoginRefused):
        made.log_in("other", b"", SEED)
    made.log_in("other", token("pw"), SEED)
    assert made.account == "other"


def test_a_certificate_with_an_empty_name_logs_in_to_no_account() -> None:
    """It got all rights of canal.passwd, if canal.user was blank."""
    made = visitor(*of_properties("", scramble.secret_of("pw").hex()), certified=("",))
    for name in ("", "shop"):
        with pytest.raises(LoginRefused):
            made.log_in(name, b"", SEED)
    made.log_in("", token("pw"), SEED)


def _kept_bytes(made: Visitor) -> int:
    """Return the size of the texts that a connection keeps of its login."""
    name, proof, _ = made._login
    password = proof.keywords["password"] if isinstance(proof, partial) else b""
    return sum(map(getsizeof, (name, made.actor.account, password)))


def test_a_stranger_with_a_long_name_or_password_leaves_none_of_it_on_the_connection() -> None:
    """A name of 64 KiB with one wide character took 261 KB on each connection, outside every budget."""
    long_name = "\U0001f600" + "a" * 65_000
    for name, password in ((long_name, token("pw")), (long_name, b""), ("shop", b"0" * 65_000)):
        made = visitor(reader("shop", "pw"))
        with pytest.raises(LoginRefused, match="auth failed"):
            made.log_in(name, password, SEED)
        assert _kept_bytes(made) < 1000
    told = [_answer(made, long_name) for _ in range(FREE_FAILURES + 1)]
    assert "too many failed logins" in told[-1]


def test_a_login_that_succeeds_leaves_no_long_name_or_password_on_the_connection() -> None:
    """A node without accounts and a certificate need no password, and canal.passwd alone accepts every name."""
    certified = visitor(reader("shop"), certified=("shop",))
    certified.log_in("shop", b"0" * 65_000, SEED)
    opened = visitor()
    opened.log_in("a" * 65_000, b"0" * 65_000, SEED)
    anybodys = visitor(*of_properties("", scramble.secret_of("pw").hex()))
    anybodys.log_in("a" * NAME_CHARACTERS, token("pw"), SEED)
    with pytest.raises(LoginRefused):
        anybodys.log_in("a" * (NAME_CHARACTERS + 1), token("pw"), SEED)
    for made in (certified, opened, anybodys):
        assert _kept_bytes(made) < 1000


def test_a_session_of_the_page_has_no_long_user_name() -> None:
    """It keeps the header of its login, and canal.passwd alone accepted every name."""
    accounts = Accounts(of_properties("", scramble.secret_of("pw").hex()))
    entrance = Entrance(lambda: accounts, Clock())
    for length, right in ((NAME_CHARACTERS, True), (NAME_CHARACTERS + 1, False)):
        header = "Basic " + b64encode(b"a" * length + b":pw").decode()
        if right:
            assert entrance.over_http(header, FAR) is not None
        else:
            with pytest.raises(LoginRefused):
                entrance.over_http(header, FAR)


def test_a_guesser_waits_and_the_owner_elsewhere_does_not() -> None:
    """After some failures even the right password waits, at this address alone."""
    accounts, clock = Accounts([reader("shop", "pw")]), Clock()
    entrance = Entrance(lambda: accounts, clock)
    guesser, owner = Visitor(entrance, FAR), Visitor(entrance, "/10.0.0.1")
    for _ in range(FREE_FAILURES):
        with pytest.raises(LoginRefused):
            guesser.log_in("shop", token("wrong"), SEED)
    with pytest.raises(Busy, match="try again in 1 s"):
        guesser.log_in("shop", token("pw"), SEED)
    owner.log_in("shop", token("pw"), SEED)
    clock.advance(1.01)
    guesser.log_in("shop", token("pw"), SEED)
    assert entrance.refusals == {"login_failed": FREE_FAILURES, "locked_out": 1}


@pytest.mark.parametrize("others", [0, 1, FREE_FAILURES, 2 * NAMES_KEPT, 1000])
def test_a_wait_does_not_tell_which_accounts_exist(others: int) -> None:
    """Behind any number of failures with made-up names, an existing name is answered as one that does not exist."""

    def answers(name: str) -> list[str]:
        made = visitor(reader("shop", "pw"))
        return [
            _answer(made, each).replace(name, "NAME")
            for each in (*(f"guess{number}" for number in range(others)), *([name] * (FREE_FAILURES + 2)))
        ]

    assert answers("shop") == answers("nobody")


@pytest.mark.parametrize("password", [b"not hex", b"00"])
def test_a_malformed_password_counts_as_a_failed_login(password: bytes) -> None:
    """canal closes the connection then, and such a login had no wait, no figure and no line in the audit log."""
    lines: list[bytes] = []
    made = Accounts([reader("shop", "pw")])
    entrance = Entrance(lambda: made, Clock(), Audit(Clock(), lines.append))
    for _ in range(FREE_FAILURES):
        with pytest.raises(RemoteProtocolError):
            Visitor(entrance, FAR).log_in("shop", password, SEED)
    with pytest.raises(Busy):
        Visitor(entrance, FAR).log_in("shop", token("pw"), SEED)
    assert entrance.refusals == {"login_failed": FREE_FAILURES, "locked_out": 1}
    assert b"the password" in lines[0]


def test_a_malformed_password_of_a_node_without_accounts_is_none_when_it_has_some() -> None:
    """The connection needs a new login then."""
    held = [Accounts()]
    made = Visitor(Entrance(lambda: held[0], Clock()), FAR)
    made.log_in("shop", b"not hex", SEED)
    held[0] = Accounts([reader("shop", "pw")])
    with pytest.raises(NotAllowed, match="needs a login"):
        made.admitted("GET", ClientIdentity("example", 1001))


def _answer(made: Visitor, name: str, password: bytes = token("x")) -> str:
    with pytest.raises((LoginRefused, Busy, RemoteProtocolError)) as caught:
        made.log_in(name, password, SEED)
    return str(caught.value)


def test_a_client_with_the_name_of_no_account_locks_out_nobody_else_at_its_address() -> None:
    """An account was removed, and its clients go on behind the address of others."""
    made = visitor(reader("shop", "pw"))
    told = [_answer(made, "removed") for _ in range(FREE_FAILURES + 1)]
    assert "too many failed logins" in told[-1]
    made.log_in("shop", token("pw"), SEED)


def test_made_up_names_share_one_wait() -> None:
    """A peer that changes the name with each guess waits as well, also if an account serves every name."""
    for account, free in ((reader("shop", "pw"), NAMES_KEPT + FREE_FAILURES), (reader("", "pw"), FREE_FAILURES)):
        made = visitor(account)
        told = [_answer(made, f"guess{number}") for number in range(free + 1)]
        assert ["too many" in text for text in told] == [False] * free + [True]


def _fill(entrance: Entrance, clock: Clock, shared: int = 16) -> None:
    """Fail at FAR with so many made-up names that the others share one count, and raise that."""
    for number in range(NAMES_KEPT + FREE_FAILURES + shared):
        clock.advance(LONGEST_SHARED_WAIT_S + 0.1 if number > NAMES_KEPT + FREE_FAILURES else 0.0)
        with pytest.raises((LoginRefused, Busy)):
            Visitor(entrance, FAR).log_in(f"guess{number}", token("x"), SEED)


def test_made_up_names_do_not_lock_out_the_accounts_behind_a_shared_address() -> None:
    """A client that has logged in from there waits for nothing, and any other for two seconds; both waited a minute."""
    accounts, clock = Accounts([reader("shop", "pw"), reader("billing", "pw")]), Clock()
    entrance = Entrance(lambda: accounts, clock)
    Visitor(entrance, FAR).log_in("shop", token("pw"), SEED)
    _fill(entrance, clock)
    Visitor(entrance, FAR).log_in("shop", token("pw"), SEED)
    with pytest.raises(Busy, match="try again in 2 s"):
        Visitor(entrance, FAR).log_in("billing", token("pw"), SEED)
    clock.advance(LONGEST_SHARED_WAIT_S + 0.1)
    Visitor(entrance, FAR).log_in("billing", token("pw"), SEED)


@pytest.mark.parametrize("asks", [False, True], ids=["waits all the time", "sends requests"])
def test_a_client_that_streamed_for_weeks_is_not_locked_out_when_it_comes_again(asks: bool) -> None:
    """Its last login was long ago, so that made-up names of a neighbour kept it out: 0 of 300 logins succeeded."""
    accounts, clock = Accounts([reader("shop", "pw")]), Clock()
    entrance = Entrance(lambda: accounts, clock)
    made = Visitor(entrance, FAR)
    made.log_in("shop", token("pw"), SEED)
    for _ in range(30 * 24):
        clock.advance(3600.0)
        if asks:
            made.admitted("GET", ClientIdentity("example", 1001))
    if not asks:
        made.leave()
    _fill(entrance, clock)
    Visitor(entrance, FAR).log_in("shop", token("pw"), SEED)


def test_whoever_lost_the_account_or_never_had_it_is_a_stranger_when_the_connection_ends() -> None:
    """The end of a connection gives its address nothing that its login did not give."""
    held, clock = [Accounts([reader("shop", "old")])], Clock()
    entrance = Entrance(lambda: held[0], clock)
    leaked, stranger = Visitor(entrance, FAR), Visitor(entrance, FAR)
    leaked.log_in("shop", token("old"), SEED)
    clock.advance(KNOWN_FOR_S + 1)
    held[0] = Accounts([reader("shop", "pw")])
    with pytest.raises(LoginRefused):
        stranger.log_in("nobody", token("wrong"), SEED)
    leaked.leave()
    stranger.leave()
    _fill(entrance, clock)
    with pytest.raises(Busy):
        Visitor(entrance, FAR).log_in("shop", token("pw"), SEED)


def test_made_up_names_do_not_lock_out_bearer_tokens() -> None:
    """Tokens have a count of their own."""
    accounts, clock = Accounts([replace(reader("scraper"), tokens=(sha256(b"mine").digest(),))]), Clock()
    entrance = Entrance(lambda: accounts, clock)
    _fill(entrance, clock)
    assert entrance.over_http("Bearer mine", FAR) is not None


@pytest.mark.parametrize("pause", [0.0, 0.5, LONGEST_SHARED_WAIT_S + 0.1])
def test_a_wait_does_not_tell_which_accounts_log_in_from_the_same_address(pause: float) -> None:
    """Whoever shares the address gets the same answers for such a name and for one that does not exist."""

    def answers(name: str) -> list[str]:
        accounts, clock = Accounts([reader("shop", "pw")]), Clock()
        entrance = Entrance(lambda: accounts, clock)
        made = Visitor(entrance, FAR)
        made.log_in("shop", token("pw"), SEED)
        _fill(entrance, clock, shared=0)
        told = []
        for _ in range(3 * FREE_FAILURES):
            told.append(_answer(made, name).replace(name, "NAME"))
            clock.advance(pause)
        return told

    assert answers("shop") == answers("nobody")


def test_whoever_guesses_at_a_client_of_the_same_address_waits() -> None:
    """Behind made-up names too: few of the guesses are looked at, and the last one is right."""
    accounts, clock = Accounts([reader("shop", "pw")]), Clock()
    entrance = Entrance(lambda: accounts, clock)
    made = Visitor(entrance, FAR)
    made.log_in("shop", token("pw"), SEED)
    _fill(entrance, clock)
    for _ in range(FREE_FAILURES):
        assert "too many" in _answer(made, "shop")
    with pytest.raises(Busy):
        made.log_in("shop", token("pw"), SEED)


def test_rights_follow_the_accounts_of_the_moment() -> None:
    """A connection that is open loses a right, and its account, with the next request after the file changes."""
    held = [Accounts([reader("shop", "pw", filter=r"a\..*")])]
    made = Visitor(Entrance(lambda: held[0], Clock()), FAR)
    made.log_in("shop", token("pw"), SEED)
    client = ClientIdentity("example", 1001)
    assert made.admitted("GET", client) == ClientIdentity("example", 1001, within=Within(r"a\..*"), account="shop")
    held[0] = Accounts([reader("shop", "pw")])
    wide = made.admitted("GET", client)
    assert wide == ClientIdentity("example", 1001, account="shop")
    assert made.admitted("GET", client) is wide
    held[0] = Accounts([reader("shop", "pw", destinations=("other",))])
    with pytest.raises(NotAllowed, match="account shop has no right on destination:example"):
        made.admitted("GET", client)
    held[0] = Accounts([reader("new", "pw")])
    with pytest.raises(NotAllowed, match="needs a login"):
        made.admitted("GET", client)


def test_a_password_that_was_taken_back_ends_the_rights_of_open_connections() -> None:
    """Its connection needs a new login, and does not become that of the account for every name."""
    changed = Accounts([reader("shop", "new")])
    with_anybodys = Accounts(of_properties("", scramble.secret_of("another").hex()))
    for after in (changed, with_anybodys):
        held = [Accounts([reader("shop", "old", "new")])]
        entrance = Entrance(lambda held=held: held[0], Clock())  # type: ignore[misc]  # mypy knows no default here
        leaked, kept = Visitor(entrance, FAR), Visitor(entrance, FAR)
        leaked.log_in("shop", token("old"), SEED)
        kept.log_in("shop", token("new"), SEED)
        held[0] = after
        with pytest.raises(NotAllowed, match="needs a login"):
            leaked.admitted("GET", ClientIdentity("example", 1001))
        if after is changed:
            assert kept.admitted("GET", ClientIdentity("example", 1001)).account == "shop"


def test_http_logs_in_with_the_same_passwords() -> None:
    """Basic authentication uses the same hashes. Without accounts, peers of this machine are its operators."""
    made = Accounts([reader("shop", "p:w")])
    entrance = Entrance(lambda: made, Clock())
    found = entrance.over_http("Basic " + b64encode(b"shop:p:w").decode(), FAR)
    assert found is not None
    assert found.name == "shop"
    assert entrance.over_http(None, "/127.0.0.1") is None
    for wrong in ("Basic " + b64encode(b"shop:pw").decode(), "Basic =", "Bearer x"):
        with pytest.raises((LoginRefused, Busy)):
            entrance.over_http(wrong, FAR)
    opened = Entrance(Accounts, Clock())
    assert opened.over_http(None, "10.0.0.9") is ANYBODY


def test_a_proxy_on_the_nodes_machine_makes_nobody_an_operator() -> None:
    """Without accounts, the address gives no right to switch: only the operator's token does."""
    opened = Entrance(Accounts, Clock())
    assert opened.over_http(None, "/127.0.0.1") is ANYBODY
    assert opened.over_http("Bearer ", "/127.0.0.1") is ANYBODY
    opened.operator_token = sha256(b"written at the start").digest()
    assert opened.over_http("Bearer written at the start", "/127.0.0.1") is OPERATOR
    assert opened.over_http("Bearer another", "/127.0.0.1") is ANYBODY
    with pytest.raises(NotAllowed, match=r"operator\.token"):
        opened.check(ANYBODY, gate.SWITCH, "example")


def test_a_bearer_token_logs_in_over_http() -> None:
    """Either of two tokens names its account, without a name. A wrong one is refused, and guessing has to wait."""
    hashes = tuple(sha256(text).digest() for text in (b"old", b"new"))
    made = Accounts([replace(reader("scraper"), tokens=hashes), reader("shop", "pw")])
    clock = Clock()
    entrance = Entrance(lambda: made, clock)
    for right in ("Bearer old", "bearer new"):
        found = entrance.over_http(right, FAR)
        assert found is not None
        assert found.name == "scraper"
    for wrong in ("Bearer x", "Bearer ", "Bearer", f"Bearer {hashes[0].hex()}"):
        with pytest.raises(LoginRefused):
            entrance.over_http(wrong, FAR)
    for _ in range(FREE_FAILURES):
        with pytest.raises((LoginRefused, Busy)):
            entrance.over_http("Bearer guess", FAR)
    with pytest.raises(Busy, match="too many invalid tokens"):
        entrance.over_http("Bearer guess", FAR)
    assert entrance.over_http("Bearer old", "/10.0.0.10") is not None
    with pytest.raises(LoginRefused):
        visitor(*(replace(reader("scraper"), tokens=hashes),)).log_in("scraper", token("old"), SEED)


def test_wrong_tokens_of_an_address_do_not_lock_out_a_valid_one_behind_it() -> None:
    """None of 720 requests in an hour got an answer, while a neighbour sent wrong tokens all the time."""
    accounts, clock = Accounts([replace(reader("scraper"), tokens=(sha256(b"mine").digest(),))]), Clock()
    entrance = Entrance(lambda: accounts, clock)
    looked_at = 0
    for second in range(3600):
        clock.advance(1.0)
        for _ in range(FREE_FAILURES):
            with pytest.raises((LoginRefused, Busy)) as caught:
                entrance.over_http("Bearer guess", FAR)
            looked_at += caught.type is LoginRefused
        if second % 5 == 0:
            assert entrance.over_http("Bearer mine", FAR) is not None
    assert looked_at < 100


def test_a_valid_token_gives_no_further_guesses_at_others() -> None:
    """Whoever has one may still not guess. It logs in itself meanwhile, until it is taken back."""
    known = Account("scraper", roles=frozenset({AccountRole.READ}), tokens=(sha256(b"mine").digest(),))
    made = Accounts([known, reader("shop", "pw")])
    entrance = Entrance(lambda: made, Clock())
    for _ in range(FREE_FAILURES):
        assert entrance.over_http("Bearer mine", FAR) == known
        with pytest.raises(LoginRefused):
            entrance.over_http("Bearer guess", FAR)
    with pytest.raises(Busy):
        entrance.over_http("Bearer guess", FAR)
    assert entrance.over_http("Bearer mine", FAR) == known
    made = Accounts([reader("shop", "pw")])
    with pytest.raises(Busy):
        entrance.over_http("Bearer mine", FAR)
