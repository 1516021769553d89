"""The accounts file: what it says, and which line is at fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from canal_ha.accounts import gate
from canal_ha.accounts.account import Account, AccountRole
from canal_ha.accounts.parse import of_properties, parse
from canal_ha.errors import ConfigError, FileUnusable
from canal_ha.model.privacy import ColumnRules

HASH = "E3619321C1A937C46A0D8BD1DAC39F93B27D4458"
SECRET = bytes.fromhex(HASH)

GOOD = f"""
[accounts.billing]
passwords = ["{HASH}", "*{"0" * 40}"]
roles = ["read"]
destinations = ["shop", "orders-*"]
client_ids = [1001, "2000-2999", "-5--3"]
filter = 'shop\\.invoice.*'
privacy = {{ mask = 'shop\\..*:phone', hash = 'shop\\.users:email/name' }}

[accounts."Jane Doe"]
roles = ["read", "admin"]
destinations = ["*"]
"""


def test_accounts_are_read_as_they_are_meant() -> None:
    """Every key is read; what is left out means every client id, every table, and no password."""
    billing, jane = parse(GOOD, "accounts.toml")
    assert billing == Account(
        "billing",
        (SECRET, bytes(20)),
        frozenset({AccountRole.READ}),
        ("shop", "orders-*"),
        ((1001, 1001), (2000, 2999), (-5, -3)),
        r"shop\.invoice.*",
        ColumnRules(mask=r"shop\..*:phone", hash=r"shop\.users:email/name"),
    )
    assert jane == Account("Jane Doe", (), frozenset(AccountRole), ("*",))
    assert billing.reaches("orders-7")
    assert not billing.reaches("shop2")
    assert billing.has_client(2500)
    assert not billing.has_client(1002)
    assert HASH.lower() not in repr(billing).lower()


@pytest.mark.parametrize(("text", "line", "reason"), [
    ("[accounts.a\n", 1, "is not TOML"),
    ("", 0, "has no account"),
    ("[accounts]\n", 0, "has no account"),
    ("\nother = 1\n[accounts.a]\n", 2, "unknown key other"),
    ("[accounts.a]\nroles = ['read']\n", 1, "account a: destinations is missing"),
    ("[accounts.a]\ndestinations = ['*']\n", 1, "account a: roles is missing"),
    ("[accounts.b]\nroles = ['read']\ndestinations = ['*']\n[accounts.a]\nroles = ['read']\ndestinations = ['*']\n"
     "role = 1\n", 7, "account a: role: unknown key, did you mean roles?"),
    ("[accounts.a]\ndestinations = ['*']\n\nroles = ['write']\n", 4, "roles: expected a list of read and admin"),
    ("[accounts.a]\nroles = ['read']\ndestinations = ['*']\nprivacy = 'x'\n", 4, "privacy: expected a table of texts"),
    ("[accounts.a]\nroles = ['read']\ndestinations = ['*']\nprivacy = { hide = 'x' }\n", 4, "unknown key hide"),
    ("[accounts.a]\nroles = ['read']\ndestinations = ['*']\nprivacy = { mask = 'users:a' }\n", 4,
     "column rule 'users:a' is not"),
    ("[accounts.a]\nroles = ['read']\ndestinations = '*'\n", 3, "account a: destinations: expected a list"),
    ("[accounts.a]\nroles = ['read']\ndestinations = ['*']\npasswords = ['geheim']\n", 4, "40 hexadecimal digits"),
    (f"[accounts.a]\nroles = ['read']\ndestinations = ['*']\npasswords = {['0' * 40] * 3}\n", 4, "at most 2 times"),
    ("[accounts.a]\nroles = ['read']\ndestinations = ['*']\ntokens = ['geheim']\n", 4, "64 hexadecimal digits"),
    (f"[accounts.a]\nroles = ['read']\ndestinations = ['*']\ntokens = {['0' * 64]}\n[accounts.b]\nroles = ['read']\n"
     f"destinations = ['*']\ntokens = {['0' * 64]}\n", 8, "another account has this token"),
    ("[accounts.a]\nroles = ['read']\ndestinations = ['*']\nclient_ids = ['9-1']\n", 4, "client_ids: expected"),
    ("[accounts.a]\nroles = ['read']\ndestinations = ['*']\nclient_ids = [70000]\n", 4, "client_ids: expected"),
    ("[accounts.a]\nroles = ['read']\ndestinations = ['*']\nclient_ids = [true]\n", 4, "client_ids: expected"),
    ("[accounts.a]\nroles = ['read']\ndestinations = ['*']\nfilter = 'shop('\n", 4, "filter: "),
    ("[accounts.canal]\nroles = ['read']\ndestinations = ['*']\n", 1, "canal.user has this name already"),
    (f"[accounts.a]\nroles = ['read']\ndestinations = ['*']\nclient_ids = [{'9' * 5000}]\n", 0, "is not TOML"),
    (f"[accounts.a]\nroles = ['read']\ndestinations = ['*']\nclient_ids = [0x{'f' * 5000}]\n", 4,
     "client_ids: expected"),
    (f"accounts = {'[' * 5000}", 0, "is not TOML"),
    (f"[accounts.{'a' * 256}]\nroles = ['read']\ndestinations = ['*']\n", 1, "its name has 256 characters"),
])  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(text: str, line: int, reason: str) -> None:
    """The error has the file, the line and the reason, and no password hash."""
    with pytest.raises(FileUnusable) as caught:
        parse(text, "accounts.toml", taken="canal")
    assert (caught.value.file, caught.value.line) == ("accounts.toml", line)
    assert reason in str(caught.value)


def test_a_hash_can_come_from_a_file() -> None:
    """The caller reads it. A file that cannot be read is named with the line, and an unusable text is not shown."""
    text = "[accounts.a]\nroles = ['read']\ndestinations = ['*']\npasswords = ['${file:one}', '${file:two}']\n"
    (account,) = parse(text, "accounts.toml", filled=lambda password: f"{HASH}\n")
    assert account.secrets == (SECRET, SECRET)

    def unreadable(password: str) -> str:
        raise ValueError(f"a readable file: {password[7:10]}: No such file or directory")

    for filled, reason in ((unreadable, "a readable file: one: No such"), (lambda password: "s3cret", "40 hexa")):
        with pytest.raises(FileUnusable, match=rf"account a: passwords: expected .*{reason}") as caught:
            parse(text, "accounts.toml", filled=filled)
        assert caught.value.line == 4
        assert "s3cret" not in str(caught.value)


def test_canals_keys_are_one_account_with_all_rights() -> None:
    """canal.user and canal.passwd make one account; without a user it has every name; without both there is none."""
    (account,) = of_properties("canal", HASH)
    assert (account.name, account.secrets, account.roles) == ("canal", (SECRET,), frozenset(AccountRole))
    assert account.reaches("anything")
    assert account.has_client(-1)
    assert of_properties("", HASH)[0].name == ""
    assert of_properties("", "") == ()
    with pytest.raises(ConfigError, match=r"canal\.user.*at most 255 characters"):
        of_properties("a" * 256, HASH)


def test_the_example_of_the_documentation_is_valid() -> None:
    """docs/security.md shows a file that a node accepts, and says what its accounts may do."""
    page = (Path(__file__).parents[2] / "docs/security.md").read_text()
    billing, monitoring, operator = parse(page.partition("```toml\n")[2].partition("```")[0], "page")
    assert not gate.refusal(billing, "GET", "orders-7", 2001)
    assert not gate.refusal(monitoring, gate.METRICS)
    assert gate.refusal(monitoring, "GET", "shop", 1001)
    assert not gate.refusal(operator, gate.SWITCH, "shop")
    assert gate.refusal(operator, "GET", "shop", 1001)
