"""Account: a name, its passwords and its rights; Accounts: all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase

from canal_ha.model.privacy import NO_RULES, ColumnRules, Within

NAME_CHARACTERS = 255  # of the longest name; a certificate has at most 253 for a host


class AccountRole(Enum):
    """What an account is for."""

    READ = "read"  # the rows of its destinations and client ids, and the figures of its destinations
    ADMIN = "admin"  # the actions on its destinations, and their figures


@dataclass(frozen=True, slots=True)
class Account:
    """One account.

    name: what a client sends, or its certificate names; "" for nobody in particular.
    secrets: SHA1(SHA1(password)) of each valid password, 20 bytes; none: no password logs in.
    tokens: SHA-256 of each valid bearer token, 32 bytes. A token logs in over HTTP alone.
    roles: what it may do.
    destinations: globs of destination names.
    client_ids: ranges, ends included; None: every client id.
    filter: the widest table filter of its reads; "": any. A client's own filter only narrows it.
    privacy: columns that it may not see in clear, besides those of the destination.
    """

    name: str
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    tokens: tuple[bytes, ...] = field(default=(), repr=False, kw_only=True)
    roles: frozenset[AccountRole] = frozenset()
    destinations: tuple[str, ...] = ()
    client_ids: tuple[tuple[int, int], ...] | None = None
    filter: str = ""
    privacy: ColumnRules = NO_RULES
    within: Within = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "within", Within(self.filter, self.privacy))

    def reaches(self, destination: str) -> bool:
        """Return whether one of its globs matches the destination."""
        return any(fnmatchcase(destination, glob) for glob in self.destinations)

    def has_client(self, client_id: int) -> bool:
        """Return whether it may use the client id."""
        return self.client_ids is None or any(low <= client_id <= high for low, high in self.client_ids)


ANYBODY = Account("", roles=frozenset({AccountRole.READ}), destinations=("*",))
"""A peer of a node without accounts."""
OPERATOR = Account("", roles=frozenset(AccountRole), destinations=("*",))
"""Who can read the operator's token of a node without accounts."""


class Accounts:
    """The accounts of a node at one moment. Without any the node is open."""

    def __init__(self, accounts: Iterable[Account] = ()) -> None:
        """accounts: with different names; one with the name "" serves every name that no other has."""
        self._accounts = {account.name: account for account in accounts}
        self._by_token = {token: account for account in self._accounts.values() for token in account.tokens}

    @property
    def is_open(self) -> bool:
        """Whether the node has no accounts, so that everybody may read."""
        return not self._accounts

    def named(self, name: str) -> Account | None:
        """Return the account of a name; None if there is none, or if the name is too long for one."""
        return None if len(name) > NAME_CHARACTERS else self._accounts.get(name) or self._accounts.get("")

    def plus(self, account: Account) -> Accounts:
        """Return these accounts and one more, which takes the place of one with its name."""
        return Accounts((*self._accounts.values(), account))

    def of_token(self, hashed: bytes) -> Account | None:
        """Return the account of a bearer token; None if there is none. hashed: SHA-256 of the token."""
        return self._by_token.get(hashed)

    def __len__(self) -> int:
        return len(self._accounts)

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())
