"""The accounts file of a running node: what a change may take away, and what the audit says about it."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from canal_ha.accounts.account import Account
from canal_ha.config.load import load_usable
from canal_ha.node.accounts_file import AccountsFile
from canal_ha.server.audit import Audit
from tests.running_reactor import running_reactor
from tests.waiting import until
from tests.zookeeper.stage import on_reactor, reactor

HASH, NEXT = "a" * 40, "b" * 40
LOOK_S = 0.05
BOSS = f'[accounts.boss]\nroles = ["admin"]\ndestinations = ["*"]\npasswords = ["{HASH}"]\n'
SHOP = f"""[accounts.shop]
roles = ["read"]
destinations = ["shop"]
passwords = ["{HASH}"]
client_ids = [1001]
filter = 'shop\\.a'

[accounts.shop.privacy]
drop = 'shop\\.a:card'
mask = 'shop\\.a:phone'
"""


class Watched:
    """An accounts file of a node, which looks at it twenty times a second."""

    def __init__(self, conf: Path) -> None:
        (conf / "canal.properties").write_text("canal.ip = 127.0.0.1\ncanal.accounts.file = ../conf/accounts.toml\n")
        config = load_usable(conf, (), {})
        assert config.accounts_file
        self.path = config.accounts_file
        self.path.write_text(BOSS + SHOP)
        self.written: list[bytes] = []
        self._config = config

    async def start(self) -> None:
        self.file = AccountsFile(self._config, reactor, Audit(reactor, self.written.append))
        self.file.start()

    async def stop(self) -> None:
        self.file.stop()

    def account(self, name: str) -> Account | None:
        return self.file.accounts.named(name)

    def alarm(self) -> str:
        (alarm,) = until(lambda: self.file.alarms or None, seconds=5.0, what="an alarm")
        return alarm.text

    def noted(self, result: str = "ok") -> dict[str, Any]:
        """Return the details of the last line with this result."""

        def found() -> dict[str, Any] | None:
            lines = [line for line in map(json.loads, self.written) if line["result"] == result]
            return dict(lines[-1]["details"]) if lines else None

        return until(found, what=f"a line {result}")


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr("canal_ha.node.accounts_file.PERIOD_S", LOOK_S)
    running_reactor()
    (tmp_path / "conf").mkdir()
    made = Watched(tmp_path / "conf")
    on_reactor(made.start)
    yield made
    on_reactor(made.stop)


@pytest.mark.parametrize(("last", "key"), [
    (HASH + '"]', "client_ids"), ("[1001]", "filter"), (r"'shop\.a'", "privacy: drop"), ("privacy]", "privacy: drop"),
    (":card'", "privacy: mask"),
])  # fmt: skip
def test_a_file_that_a_full_disk_cut_widens_no_account(watched: Watched, last: str, key: str) -> None:
    """It is valid TOML up to each end of a line. The alarm names what is lost; a whole file ends it."""
    whole = watched.path.read_text()
    before = watched.account("shop")
    watched.path.write_text(whole[: whole.rindex(last) + len(last)] + "\n")
    assert f"account shop: {key}" in watched.alarm()
    assert watched.account("shop") == before
    assert f"account shop: {key}" in watched.noted("refused")["error"]
    watched.path.write_text(whole + "# whole again\n")
    until(lambda: not watched.file.alarms, what="the end of the alarm")


@pytest.mark.parametrize("key", ["passwords", "tokens"])
def test_a_file_that_a_full_disk_cut_takes_no_login_away(watched: Watched, key: str) -> None:
    """Passwords and tokens are the last keys, so a cut takes them first; a written empty list takes them away."""
    start = BOSS + SHOP + '[accounts.new]\nroles = ["read"]\ndestinations = ["shop"]\n'
    line = f'{key} = ["{HASH if key == "passwords" else "d" * 64}"]\n'
    watched.path.write_text(start + line)
    until(lambda: _has_login(watched, "new"), what="the new account")
    watched.path.write_text(start)
    assert f"account new: {key}: is missing" in watched.alarm()
    assert _has_login(watched, "new")
    watched.path.write_text(start + f"{key} = []\n")
    until(lambda: not _has_login(watched, "new"), what="the end of the login")


def test_two_cuts_widen_no_account(watched: Watched) -> None:
    """The first cut takes the account away, after its delay; the second one lies in front of its restrictions."""
    watched.path.write_text(BOSS)
    until(lambda: watched.account("shop") is None, what="the removal")
    watched.path.write_text(BOSS + SHOP.partition("client_ids")[0])
    assert "account shop: client_ids" in watched.alarm()
    assert watched.account("shop") is None
    watched.path.write_text(BOSS + SHOP)
    until(lambda: watched.account("shop"), what="the account")


def os_written(path: Path, text: str) -> None:
    """Write without pathlib, which a test breaks."""
    with open(path, "w") as file:
        file.write(text)


def _has_login(watched: Watched, name: str) -> bool:
    account = watched.account(name)
    return account is not None and bool(account.secrets or account.tokens)


def test_an_account_is_widened_by_the_widest_values(watched: Watched) -> None:
    """What the alarm tells to write opens the account to everything."""
    text = watched.path.read_text().partition("client_ids")[0]
    wide = "client_ids = ['-32768-32767']\nfilter = ''\nprivacy = { drop = '', mask = '' }\n"
    watched.path.write_text(text + wide)
    assert watched.noted()["changed"] == "shop (client_ids, filter, privacy)"
    shop = watched.account("shop")
    assert shop
    assert (shop.filter, shop.has_client(-32768), shop.has_client(32767)) == ("", True, True)


def test_the_audit_and_the_log_name_the_accounts_that_a_change_is_about(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """Added, removed and changed ones, these with their keys; a change that is about none names none."""
    caplog.set_level(logging.INFO, "canal_ha")
    other = SHOP.replace("shop]", "new]").replace("shop.privacy", "new.privacy")
    watched.path.write_text(BOSS.replace(HASH, NEXT).replace('"admin"', '"admin", "read"') + other)
    facts = {"added": "new", "removed": "shop", "changed": "boss (passwords, roles)"}
    assert watched.noted() == {"file": str(watched.path), "accounts": 2, **facts}
    told = [record.getMessage() for record in caplog.records if "accounts.reloaded" in record.getMessage()]
    assert all(text in told[-1] for text in facts.values())
    watched.written.clear()
    watched.path.write_text(watched.path.read_text() + "# no change\n")
    assert watched.noted() == {"file": str(watched.path), "accounts": 2}


def test_a_slow_copy_takes_no_account_away(watched: Watched) -> None:
    """A copy that has not arrived in full lacks the last accounts. It has more time than other changes."""
    watched.path.write_text(BOSS.replace(HASH, NEXT))
    assert not _within(0.3, lambda: watched.account("shop") is None)
    watched.path.write_text(BOSS.replace(HASH, NEXT) + SHOP)
    assert watched.noted()["changed"] == "boss (passwords)"
    watched.path.write_text(BOSS)
    until(lambda: watched.account("shop") is None, what="the removal")
    assert watched.noted()["removed"] == "shop"


def test_a_file_that_a_placeholder_names_is_read_again_by_itself(watched: Watched) -> None:
    """It is made after the accounts file named it, then replaced, then removed, and each is noticed, once."""
    named = watched.path.parent / "hash"
    watched.path.write_text(BOSS.replace(HASH, "${file:hash}") + SHOP)
    assert str(named) in watched.alarm()
    assert "read again by itself" in watched.alarm()
    named.write_text(NEXT[:20])
    until(lambda: "40 hexadecimal digits" in watched.alarm(), seconds=5.0, what="the alarm about a half-written hash")
    for text in (NEXT, "c" * 40):
        beside = named.with_name("new")
        beside.write_text(f"{text}\n")
        beside.replace(named)
        until(lambda text=text: _secret(watched, "boss") == text, seconds=5.0, what="the new hash")  # type: ignore[misc]
        assert not watched.file.alarms
    named.unlink()
    assert str(named) in watched.alarm()
    results = [json.loads(line)["result"] for line in watched.written]
    assert results == ["refused", "refused", "ok", "ok", "refused"]
    assert _secret(watched, "boss") == "c" * 40


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO])
@pytest.mark.parametrize("where", ["canal_ha.node.accounts_file.read_small", "canal_ha.config.outside.read_small"])
def test_a_file_that_the_system_cannot_read_for_a_moment_is_read_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, where: str, code: int
) -> None:
    """A password that was taken back stayed valid until somebody touched the file."""
    failed: list[object] = []
    secret = watched.path.parent / "secret"
    secret.write_text(NEXT)

    def fails(*_: object, **__: object) -> None:
        failed.append(code)
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(where, fails)
        os_written(watched.path, BOSS.replace(HASH, "${file:secret}") + SHOP)
        assert os.strerror(code) in watched.alarm()
        until(lambda: len(failed) > 4, what="further looks")
    until(lambda: not watched.file.alarms, what="the end of the alarm")
    assert _secret(watched, "boss") == NEXT
    assert sum(b'"refused"' in each for each in watched.written) == 1


def test_an_alarm_about_a_file_that_looks_unreadable_for_a_moment_ends(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is then as it was before."""
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.stat", _unreadable)
        assert os.strerror(errno.EIO) in watched.alarm()
    until(lambda: not watched.file.alarms, what="the end of the alarm")


def _unreadable(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_an_unforeseen_error_does_not_end_the_looks(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node never looked at the file again, and nothing said so."""
    errors: list[str] = []

    def broken(*_: object) -> None:
        errors.append("broken")
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr("canal_ha.node.accounts_file.changes", broken)
        watched.path.write_text(BOSS + SHOP + "# changed\n")
        until(lambda: len(errors) > 1, seconds=5.0, what="a second look")
    watched.path.write_text(BOSS + SHOP.replace("1001", "1002"))
    assert watched.noted()["accounts"] == 2


def test_an_accounts_file_that_is_a_pipe_is_refused(watched: Watched) -> None:
    """A thread waited for its writer for ever."""
    watched.path.unlink()
    os.mkfifo(watched.path)
    assert "cannot be read (it is not a regular file)" in watched.alarm()


def _secret(watched: Watched, name: str) -> str:
    account = watched.account(name)
    return account.secrets[0].hex() if account else ""


def _within(seconds: float, condition: Any) -> bool:
    try:
        until(condition, seconds=seconds)
    except AssertionError:
        return False
    return True
