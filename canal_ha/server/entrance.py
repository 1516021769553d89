"""Entrance: who a peer is, on every port of the node, and whether it may do what it asks. Reactor thread."""

from __future__ import annotations

import hmac
from base64 import b64decode
from binascii import Error
from collections import Counter
from collections.abc import Callable, Collection
from copy import copy
from dataclasses import replace
from functools import lru_cache, partial
from hashlib import sha256

from canal_ha.accounts import gate
from canal_ha.accounts.account import ANYBODY, NAME_CHARACTERS, OPERATOR, Account, Accounts
from canal_ha.accounts.lockout import Lockout
from canal_ha.accounts.origin import origin_of
from canal_ha.errors import Busy, LoginRefused, NotAllowed, RemoteProtocolError
from canal_ha.model.clock import Clock
from canal_ha.model.excerpt import excerpt
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.privacy import ANYTHING
from canal_ha.server.audit import Actor, Audit
from canal_ha.wire import scramble

Proof = Callable[[bytes], bool]
"""Tells whether the peer knows the password of this secret."""


class Entrance:
    """What all ports of a node have in common.

    accounts: returns those of this moment.
    clock: for the waits after failed logins.
    refusals: counts refused logins, connections and requests by reason, for the metrics.
    audit: writes down who logged in and who was refused; None: nobody does.
    operator_token: SHA-256 of the token that makes a peer the operator while there are no accounts; b"" for none.
    """

    def __init__(self, accounts: Callable[[], Accounts], clock: Clock, audit: Audit | None = None) -> None:
        self.accounts = accounts
        self.audit = audit or Audit(clock)
        self.operator_token = b""
        self.refusals: Counter[str] = Counter()
        self.clock = clock
        self._lockout = Lockout()
        self._token_lockout = Lockout()  # of all tokens of an origin, under one name

    def beside(self, account: Account) -> Entrance:
        """Return the entrance of a port that knows one more account. Waits, counts and the audit are the same."""
        joined = lru_cache(1)(Accounts.plus)  # the same object until the accounts change
        other = copy(self)
        other.accounts = lambda: joined(self.accounts(), account)
        return other

    def admit(self, name: str, peer: str, proof: Proof | None, certified: Collection[str] = ()) -> Account:
        """Return the account of a login. Raises LoginRefused, Busy, and RemoteProtocolError for a malformed password.

        name: the user name; "" takes the first account that the certificate names.
        peer: the address, as `/ip`.
        proof: of the password; None if the peer sent none.
        certified: names in the peer's verified certificate.
        """
        accounts = self.accounts()
        if accounts.is_open:
            return ANYBODY
        account = _certified(accounts, name, certified)
        if account is not None:
            return account
        account = accounts.named(name)
        key, origin, now = account.name if account else name, origin_of(peer), self.clock.seconds()
        malformed: RemoteProtocolError | None = None
        wait_s = self._lockout.wait_s(key, origin, now)
        if not wait_s or self._lockout.spares(key, origin, now):
            try:
                if account is not None and _proven(account, proof):
                    self._lockout.succeeded(key, origin, now)
                    return account
            except RemoteProtocolError as error:
                malformed = error
            self._lockout.failed(key, origin, now)
        if wait_s:  # also if the login was looked at: no answer may tell that
            self.refusals["locked_out"] += 1
            raise Busy(f"too many failed logins of user:{excerpt(name)} from this address: try again in {wait_s:.0f} s")
        self.refusals["login_failed"] += 1
        raise malformed or LoginRefused(f"auth failed for user:{excerpt(name)}")

    def admit_again(self, name: str, proof: Proof | None, certified: Collection[str]) -> Account | None:
        """Return the account of an earlier login as the accounts are now; None if the login is no longer valid.

        name, proof, certified: see admit.
        """
        accounts = self.accounts()
        if accounts.is_open:
            return ANYBODY
        if account := _certified(accounts, name, certified):
            return account
        account = accounts.named(name)
        try:
            return account if account and _proven(account, proof) else None
        except RemoteProtocolError:  # a node without accounts accepted it
            return None

    def seen(self, account: Account, peer: str) -> None:
        """Remember that a connection of the account was open until now; see Lockout.seen. peer: see admit."""
        if not self.accounts().is_open:
            self._lockout.seen(account.name, origin_of(peer), self.clock.seconds())

    def certificate_refused(self, address: str, reason: str) -> None:
        """Count and write down a client whose certificate was refused, which ended its connection."""
        self.refusals["certificate"] += 1
        self.audit.refused("login", Actor(address=address), reason)

    def check(self, who: Account | None, kind: str, destination: str = "", client_id: int | None = None) -> None:
        """Raise NotAllowed if the gate refuses the request; see gate.refusal."""
        refusal = gate.refusal(who, kind, destination, client_id)
        if refusal:
            self.refusals["not_allowed"] += 1
            raise NotAllowed(refusal)

    def over_http(self, authorization: str | None, peer: str, certified: Collection[str] = ()) -> Account | None:
        """Return the account of an HTTP request; None without a login, where one is needed.

        authorization: the header.
        peer, certified: see admit.
        Raises LoginRefused, Busy.
        """
        if authorization is None and not certified and not self.accounts().is_open:
            return None
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() == "bearer":
            return self._of_token(token, peer)
        name, password = _basic(authorization or "")
        secret = scramble.secret_of(password)
        return self.admit(name, peer, lambda known: hmac.compare_digest(known, secret), certified)

    def over_http_again(self, authorization: str) -> Account | None:
        """Return the account of an earlier login over HTTP as the accounts are now; None if it is no longer valid.

        authorization: the header of that login.
        """
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            hashed = _hashed(token)
            if self.accounts().is_open:
                return OPERATOR if hmac.compare_digest(hashed, self.operator_token) else None
            return self.accounts().of_token(hashed)
        name, password = _basic(authorization)
        secret = scramble.secret_of(password)
        return self.admit_again(name, lambda known: hmac.compare_digest(known, secret), ())

    def _of_token(self, token: str, peer: str) -> Account:
        hashed = _hashed(token)
        if self.accounts().is_open:
            return OPERATOR if hmac.compare_digest(hashed, self.operator_token) else ANYBODY
        account = self.accounts().of_token(hashed)  # looked up by the hash, so its time tells nothing of the token
        if account is not None:  # nobody guesses 256 bits; the failures stay, so that the next wrong one waits
            return account
        origin, now = origin_of(peer), self.clock.seconds()
        wait_s = self._token_lockout.wait_s("", origin, now)
        if wait_s:
            self.refusals["locked_out"] += 1
            raise Busy(f"too many invalid tokens from this address: try again in {wait_s:.0f} s")
        self._token_lockout.failed("", origin, now)
        self.refusals["login_failed"] += 1
        raise LoginRefused("the bearer token belongs to no account")


def _hashed(token: str) -> bytes:
    return sha256(token.strip().encode("latin-1", "replace")).digest()


class Visitor:
    """One connection of canal's protocol: its login, and the rights of its requests."""

    def __init__(
        self,
        entrance: Entrance,
        peer: str,
        certified: Callable[[], Collection[str]] = tuple,
        subject: Callable[[], str] = str,
    ) -> None:
        """Wait for the login.

        peer, certified: see Entrance.admit; the certificate is known only when the first packet arrives.
        subject: of the certificate, for the audit.
        """
        self.actor = Actor(address=peer.removeprefix("/"))
        self._subject = subject
        self._entrance = entrance
        self._peer = peer
        self._certified = certified
        self._account: Account | None = None
        self._login: tuple[str, Proof | None, Collection[str]] = "", None, ()  # name, proof and certificate
        self._accounts: Accounts | None = None  # those that `_account` is one of
        self._seen_at = 0.0  # when the entrance heard last that the account is here
        self._allowed: set[tuple[str, str, int]] = set()  # what the gate has let pass since
        # what was asked last, as the account asks it: a client repeats the same GET
        self._last: tuple[ClientIdentity | None, ClientIdentity, Account | None] = (None, ClientIdentity("", 0), None)
        self._passed: set[str] = set()  # kinds of requests that may be made with `_last`, while the accounts are these

    @property
    def account(self) -> str:
        """The name of the account that logged in; "" without one."""
        return self._account.name if self._account else ""

    def log_in(self, username: str, password: bytes, seed: bytes) -> None:
        """See wire.server_session.Guard. The connection keeps the name and the password, so a long one is cut."""
        if len(username) > NAME_CHARACTERS or len(password) > _PASSWORD_BYTES:  # no account has such a one
            username, password = username[:_CUT_TO], b""
        proof = partial(scramble.proves, password=password, seed=seed) if password else None
        self.actor = replace(self.actor, account=username, certificate=self._subject())
        certified = self._certified()
        try:
            self._account = self._entrance.admit(username, self._peer, proof, certified)
        except (LoginRefused, Busy, RemoteProtocolError) as error:
            self._entrance.audit.refused("login", self.actor, str(error))
            raise
        self.actor = replace(self.actor, account=self._account.name)
        self._entrance.audit.client_did("login", self.actor)
        self._login = self._account.name or username, proof, certified
        self._accounts = self._entrance.accounts()
        self._seen_at = self._entrance.clock.seconds()
        self._forget_what_passed()

    def leave(self) -> None:
        """The connection has ended. Its next one is spared; see Lockout.spares."""
        self._look_again()
        self._was_seen()

    def admitted(self, kind: str, identity: ClientIdentity) -> ClientIdentity:
        """Return the identity with the name and the limits of the account. Raises NotAllowed.

        kind: the packet's type.
        identity: what the request names.
        """
        if identity is self._last[0] and kind in self._passed and self.unchanged:  # as nearly always
            if self._entrance.clock.seconds() - self._seen_at >= _SEEN_AGAIN_S:
                self._was_seen()
            return self._last[1]
        self._look_again()
        key = (kind, *identity.key)
        if key not in self._allowed:
            self._entrance.check(self._account, *key)
            if len(self._allowed) >= _KEPT:
                self._allowed.clear()
            self._allowed.add(key)
        account = self._account
        if identity is not self._last[0] or account is not self._last[2]:
            self._passed.clear()
            if account is None or (not account.name and (account.within is ANYTHING or account.within == ANYTHING)):
                self._last = identity, identity, account
            else:
                self._last = identity, replace(identity, within=account.within, account=account.name), account
        self._passed.add(kind)
        return self._last[1]

    @property
    def unchanged(self) -> bool:
        """Whether the accounts are those of the last request, so it would be admitted as it was."""
        return self._entrance.accounts() is self._accounts

    def allowed(self, kind: str, destination: str = "") -> Account:
        """Return the account, for a request that names no client id. Raises NotAllowed.

        kind: the request, as the gate names it.
        destination: the one that the request names; "" if none.
        """
        self._look_again()
        self._entrance.check(self._account, kind, destination)
        return self._account or ANYBODY

    def _look_again(self) -> None:
        """Take over accounts that have changed since the last request, and tell now and then who is here."""
        accounts = self._entrance.accounts()
        if accounts is not self._accounts:  # the file was read again
            self._accounts = accounts
            self._forget_what_passed()
            if self._account is not None:
                self._account = self._entrance.admit_again(*self._login)
        if self._entrance.clock.seconds() - self._seen_at >= _SEEN_AGAIN_S:
            self._was_seen()

    def _forget_what_passed(self) -> None:
        self._allowed.clear()
        self._passed.clear()

    def _was_seen(self) -> None:
        self._seen_at = self._entrance.clock.seconds()
        if self._account is not None:
            self._entrance.seen(self._account, self._peer)


def _certified(accounts: Accounts, name: str, certified: Collection[str]) -> Account | None:
    for each in filter(None, certified):  # an empty name would be that of canal.passwd without canal.user
        account = accounts.named(each)
        if account is not None and account.name == each and name in ("", each):
            return account
    return None


def _proven(account: Account, proof: Proof | None) -> bool:
    return proof is not None and any(map(proof, account.secrets))


_SEEN_AGAIN_S = 3600.0  # of a connection that stays open
_KEPT = 64  # requests that a connection repeats
_PASSWORD_BYTES = 255  # a client sends 40 hex digits; scramble.py accepts more
_CUT_TO = 64  # characters of a name that is too long


def _basic(authorization: str) -> tuple[str, str]:
    """Return name and password of a header; two empty texts if it has none."""
    scheme, _, text = authorization.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, _, password = b64decode(text, validate=True).decode().partition(":")
    except (Error, ValueError):
        return "", ""
    return name, password
