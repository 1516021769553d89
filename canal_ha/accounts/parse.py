"""Reads the text of an accounts file (TOML): docs/security.md has an example."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from canal_ha.accounts.account import NAME_CHARACTERS, Account, AccountRole
from canal_ha.config.toml_text import document_of, line_of
from canal_ha.decode.name_lists import match_of_server
from canal_ha.decode.privacy import Privacy
from canal_ha.errors import ConfigError, FileUnusable, FilterInvalid
from canal_ha.model.excerpt import excerpt
from canal_ha.model.privacy import ColumnRules

PASSWORDS_MOST = 2
_HASH = re.compile(r"\*?([0-9A-Fa-f]{40})")
_TOKEN_HASH = re.compile(r"[0-9A-Fa-f]{64}")
_RANGE = re.compile(r"(-?[0-9]{1,5})(?:-(-?[0-9]{1,5}))?")
_CLIENT_IDS = range(-(2**15), 2**15)
_ANY_KEY = "the destination has its own"


def parse(
    text: str,
    file: str,
    taken: str = "",
    filled: Callable[[str], str] = lambda password: password,
    before: Iterable[Account] = (),
) -> tuple[Account, ...]:
    """Return the accounts of a file.

    text: the file's content.
    file: its path, for errors.
    taken: canal.user; no account of the file may have this name.
    filled: replaces the placeholders of a password or token, or raises ValueError with what it expected.
    before: the accounts read before; the last one of a name counts. None of them loses a restriction, its passwords or
        its tokens because the key is missing: a file that is written in part has lost its last lines, and is valid up
        to each end of a line.
    Raises FileUnusable with file, line and reason.
    """
    document = document_of(text, file)
    for key in document.keys() - {"accounts"}:
        raise FileUnusable(file, f"unknown key {excerpt(key)}; accounts are [accounts.NAME]", line_of(text, key))
    tables = document.get("accounts")
    if not isinstance(tables, dict) or not tables:
        raise FileUnusable(file, "has no account; write a table [accounts.NAME]")
    accounts: list[Account] = []
    known = {account.name: account for account in before}
    for name, table in tables.items():
        try:
            if not isinstance(table, dict):
                raise _Wrong("", f"write a table [accounts.{name}]")
            if name == taken or not name:
                raise _Wrong("", "canal.user has this name already" if name else "an account needs a name")
            if len(name) > NAME_CHARACTERS:
                raise _Wrong("", f"its name has {len(name)} characters; at most {NAME_CHARACTERS} are allowed")
            account = _account(name, table, filled)
            if name in known:
                _refuse_lost(known[name], table)
            if any(token in each.tokens for each in accounts for token in account.tokens):
                raise _Wrong("tokens", "another account has this token")
            accounts.append(account)
        except _Wrong as wrong:
            where = f"account {excerpt(name)}: {wrong.key}: " if wrong.key else f"account {excerpt(name)}: "
            raise FileUnusable(file, where + str(wrong), line_of(text, wrong.key, "accounts", name)) from wrong
    return tuple(accounts)


def of_properties(user: str, passwd: str) -> tuple[Account, ...]:
    """Return the account of canal.user and canal.passwd, with all rights; none if both are "". Raises ConfigError.

    user: its name; "" accepts every name.
    passwd: hex of SHA1(SHA1(password)).
    """
    if user and not passwd:
        raise ConfigError("canal.properties", "canal.passwd", passwd, "a password, because canal.user is set")
    if len(user) > NAME_CHARACTERS:
        raise ConfigError("canal.properties", "canal.user", excerpt(user), f"at most {NAME_CHARACTERS} characters")
    if not passwd:
        return ()
    if not _HASH.fullmatch(passwd):
        raise ConfigError("canal.properties", "canal.passwd", "***", "40 hex digits: SHA1 of SHA1 of the password")
    return (Account(user, (bytes.fromhex(passwd),), frozenset(AccountRole), ("*",)),)


class _Wrong(Exception):
    """A value of an account cannot be used. key: of the account; "" for the account itself."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


def _account(name: str, table: Mapping[str, Any], filled: Callable[[str], str]) -> Account:
    for key in table.keys() - _KEYS.keys():
        near = get_close_matches(key, _KEYS, n=1)
        raise _Wrong(key, "unknown key" + (f", did you mean {near[0]}?" if near else f"; known: {', '.join(_KEYS)}"))
    for key in ("roles", "destinations"):
        if key not in table:
            raise _Wrong("", f"{key} is missing")
    values = {}
    for key, value in table.items():
        field, read = _KEYS[key]
        values[field] = read(key, _filled(key, value, filled) if key in ("passwords", "tokens") else value)
    return Account(name, **values)


def _refuse_lost(before: Account, table: Mapping[str, Any]) -> None:
    """Raise _Wrong for restrictions, passwords or tokens that the account had and whose key is missing."""
    privacy = table.get("privacy", {})
    rules = [(rule.name, getattr(before.privacy, rule.name)) for rule in fields(ColumnRules)]
    for where, had, has, none in (
        ("client_ids", before.client_ids is not None, "client_ids" in table, f'["{_CLIENT_IDS[0]}-{_CLIENT_IDS[-1]}"]'),
        ("filter", before.filter, "filter" in table, "''"),
        ("passwords", before.secrets, "passwords" in table, "[]"),
        ("tokens", before.tokens, "tokens" in table, "[]"),
        *((f"privacy: {rule}", text, rule in privacy, "''") for rule, text in rules),
    ):
        if had and not has:
            key = where.rpartition(" ")[2]
            raise _Wrong(where, f"is missing, and the account had it; if it shall have none now, write {key} = {none}")


def _texts(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise _Wrong(key, 'expected a list of texts, as ["a", "b"]')
    return tuple(value)


def _filled(key: str, value: object, filled: Callable[[str], str]) -> list[str]:
    try:
        return [filled(text).strip() for text in _texts(key, value)]
    except ValueError as error:
        raise _Wrong(key, f"expected {error}") from error


def _passwords(key: str, value: object) -> tuple[bytes, ...]:
    hashes = [_HASH.fullmatch(text) for text in _texts(key, value)]
    if not all(hashes) or len(hashes) > PASSWORDS_MOST:
        raise _Wrong(key, f"expected at most {PASSWORDS_MOST} times 40 hexadecimal digits, SHA1(SHA1(password))")
    return tuple(bytes.fromhex(match[1]) for match in hashes if match)


def _tokens(key: str, value: object) -> tuple[bytes, ...]:
    texts = _texts(key, value)
    if len(texts) > PASSWORDS_MOST or not all(map(_TOKEN_HASH.fullmatch, texts)):
        raise _Wrong(key, f"expected at most {PASSWORDS_MOST} times 64 hexadecimal digits, SHA-256 of the token")
    return tuple(map(bytes.fromhex, texts))


def _roles(key: str, value: object) -> frozenset[AccountRole]:
    words = _texts(key, value)
    if not words or not {*words} <= {role.value for role in AccountRole}:
        raise _Wrong(key, f"expected a list of {' and '.join(role.value for role in AccountRole)}")
    return frozenset(map(AccountRole, words))


def _client_ids(key: str, value: object) -> tuple[tuple[int, int], ...]:
    expected = (
        f'expected a list of client ids and ranges from {_CLIENT_IDS[0]} to {_CLIENT_IDS[-1]}, as [1001, "2000-2999"]'
    )
    if not isinstance(value, list):
        raise _Wrong(key, expected)
    ranges = []
    for item in value:
        text = str(item) if type(item) is int and item in _CLIENT_IDS else item
        match = _RANGE.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise _Wrong(key, expected)
        low, high = int(match[1]), int(match[2] or match[1])
        if low not in _CLIENT_IDS or high not in _CLIENT_IDS or low > high:
            raise _Wrong(key, expected)
        ranges.append((low, high))
    return tuple(ranges)


def _filter(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise _Wrong(key, r"expected a text, as 'shop\..*'")
    try:
        match_of_server(value)
    except FilterInvalid as error:
        raise _Wrong(key, str(error)) from error
    return value


def _privacy(key: str, value: object) -> ColumnRules:
    known = [each.name for each in fields(ColumnRules)]
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _Wrong(key, r"expected a table of texts, as { hash = 'shop\.users:email' }")
    for name in value.keys() - {*known}:
        raise _Wrong(key, f"unknown key {excerpt(name)}; known: {', '.join(known)}")
    rules = ColumnRules(**value)
    try:
        Privacy([rules], key=_ANY_KEY)
    except FilterInvalid as error:
        raise _Wrong(key, str(error)) from error
    return rules


_KEYS: Mapping[str, tuple[str, Callable[[str, object], Any]]] = {
    "passwords": ("secrets", _passwords),
    "tokens": ("tokens", _tokens),
    "roles": ("roles", _roles),
    "destinations": ("destinations", _texts),
    "client_ids": ("client_ids", _client_ids),
    "filter": ("filter", _filter),
    "privacy": ("privacy", _privacy),
}
