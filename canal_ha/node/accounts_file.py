"""AccountsFile: the accounts of a node, read again when their file changes, or one that a placeholder in it names.

Reactor thread; files are read in the pool.

A file that cannot be used changes nothing: it is an alarm for as long as it stays so. The writer of a file may stop in
the middle, for a moment or on a full disk: see `parse` for what such a file cannot do. A file that the system does not
let the node read is tried again at each look.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from twisted.internet.threads import deferToThread

from canal_ha import logs
from canal_ha.accounts.account import Account, Accounts
from canal_ha.accounts.changes import changes
from canal_ha.accounts.parse import of_properties, parse
from canal_ha.config import alarms
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.config.model import CanalConfig
from canal_ha.config.outside import filled, named_files
from canal_ha.config.small_files import LARGEST_BYTES, read_small
from canal_ha.errors import FileUnusable
from canal_ha.node.looks import Looks
from canal_ha.server.audit import REFUSED, Audit

LOG = logs.get(__name__)
PERIOD_S = 1.0  # a file that is the same at two looks is complete
LOOKS_FOR_REMOVAL = 10  # a file that lacks accounts may be a slow copy: it has to stay the same for so many more
REMOVED_KEPT = LARGEST_BYTES // 32  # more than a file can hold: each account has roles and destinations

State = tuple[int, int, int, int] | str
"""The state of a file, which shows a change without reading it; or why it is unknown."""


def read_accounts(
    config: CanalConfig, before: Iterable[Account] = (), seen: dict[Path, State] | None = None
) -> Accounts:
    """Return the accounts of canal.user and of the accounts file. Raises ConfigError, FileUnusable for the file.

    before: the accounts that a running node has, or had; see parse.
    seen: gets the state of each file that is read, or that should be, as it was before.
    """
    states: dict[Path, State] = {} if seen is None else seen
    accounts, file = of_properties(config.user, config.passwd), config.accounts_file
    if file is None:
        return Accounts(accounts)
    states[file] = _state(file)
    try:
        text = read_small(file).decode()
    except OSError as error:
        raise FileUnusable(str(file), f"cannot be read ({error.strerror})", key="canal.accounts.file") from error
    except UnicodeDecodeError as error:
        raise FileUnusable(str(file), "is not UTF-8 text") from error

    def fill(secret: str) -> str:
        for named in named_files(secret, file.parent):
            states.setdefault(named, _state(named))
        return filled(secret, file.parent, os.environ)

    return Accounts((*accounts, *parse(text, str(file), config.user, fill, before)))


class AccountsFile:
    """See the module."""

    def __init__(self, config: CanalConfig, reactor: Any, audit: Audit) -> None:
        """Read the file. audit: writes down its changes. Raises ConfigError."""
        self._audit = audit
        self._config = config
        self._seen: dict[Path, State] = {}  # the files as they were read
        self._unread = False  # the system did not let the node read them at the last try
        self._same_looks = 0  # since the files differ from those that were read
        self._alarm: ConfigAlarm | None = None
        self.accounts = read_accounts(config, seen=self._seen)
        self._last = self._seen
        self._removed: dict[str, Account] = {}  # a file can be cut twice: an account returns with its restrictions
        self._looks = Looks(self._look, PERIOD_S, reactor, LOG, "accounts.broken")

    @property
    def alarms(self) -> tuple[ConfigAlarm, ...]:
        """The alarm about the file, while there is one."""
        return (self._alarm,) if self._alarm else ()

    def start(self) -> None:
        """Begin to look for changes."""
        if self._seen:
            self._looks.start(now=False)

    def stop(self) -> None:
        """Look no more."""
        self._looks.stop()

    async def _look(self) -> None:
        before, self._last = self._last, await deferToThread(_states, self._seen)
        if (self._last == self._seen and not self._unread) or self._last != before:
            self._same_looks = 0
            return
        self._same_looks += 1
        seen: dict[Path, State] = {}
        known = (*self._removed.values(), *self.accounts)
        try:
            accounts = await deferToThread(read_accounts, self._config, known, seen)
        except FileUnusable as error:
            told = self._unread and self._alarm is not None and self._alarm.reason == error.reason
            self._unread = _may_pass(error)
            if not self._unread:
                self._seen = self._last = seen
            if not (self._unread and told):
                self._raise_alarm(error)
            return
        self._unread = False
        found = changes(self.accounts, accounts)
        if found.removed and self._same_looks <= LOOKS_FOR_REMOVAL:
            return
        self._seen = self._last = seen
        self._remember({account.name: account for account in known}, accounts)
        self.accounts = accounts
        self._alarm = None
        facts = {"file": str(self._config.accounts_file), "accounts": len(accounts), **found.facts}
        LOG.info("accounts.reloaded", **facts)
        self._audit.note("configuration", details=facts)

    def _remember(self, known: dict[str, Account], accounts: Accounts) -> None:
        """Keep the accounts that are gone, those that went last if there are too many."""
        there = {account.name for account in accounts}
        gone = [(name, account) for name, account in known.items() if name not in there]
        self._removed = dict(gone[-REMOVED_KEPT:])

    def _raise_alarm(self, error: FileUnusable) -> None:
        text = f"{error}; the node goes on with the accounts read before; correct it; it is read again by itself"
        self._alarm = ConfigAlarm(
            alarms.REFUSED, "", text, True, time.time(), error.file, error.line, error.key, error.reason
        )
        LOG.error("accounts.refused", error=text)
        self._audit.note("configuration", REFUSED, details={"file": error.file, "error": error})


def _may_pass(error: BaseException | None) -> bool:
    """Return whether the system has refused to read a file: it may have no descriptor left for a moment."""
    return error is not None and (isinstance(error, OSError) or _may_pass(error.__cause__))


def _states(files: Iterable[Path]) -> dict[Path, State]:
    return {file: _state(file) for file in files}


def _state(file: Path) -> State:
    try:
        state = file.stat()
    except (OSError, ValueError) as error:  # a path can have a character that no file's has
        return str(error)
    return state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino
