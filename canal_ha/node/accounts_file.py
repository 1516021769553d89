"""AccountsFile: the accounts of a node, read again when their file changes. Reactor thread; files are read in the pool.

A file that cannot be used changes nothing: it is an alarm for as long as it stays so.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread

from canal_ha import logs
from canal_ha.accounts.account import Accounts
from canal_ha.accounts.parse import of_properties, parse
from canal_ha.config import alarms
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.config.model import CanalConfig
from canal_ha.errors import FileUnusable

LOG = logs.get(__name__)
PERIOD_S = 2.0
LARGEST_BYTES = 1024 * 1024

Seen = tuple[int, int, int, int] | str
"""The state of the file, which shows a change without reading it; or why it is unknown."""


class AccountsFile:
    """See the module."""

    def __init__(self, config: CanalConfig, reactor: Any) -> None:
        """Read the file. Raises ConfigError."""
        self._file = config.accounts_file
        self._user = config.user
        self._of_properties = of_properties(config.user, config.passwd)
        self._seen: Seen = ""
        self._alarm: ConfigAlarm | None = None
        self.accounts = Accounts(self._of_properties)
        if self._file:
            self._seen = _state(self._file)
            self.accounts = self._read(self._file)
        self._loop = LoopingCall(lambda: Deferred.fromCoroutine(self._look()))
        self._loop.clock = reactor

    @property
    def alarms(self) -> tuple[ConfigAlarm, ...]:
        """The alarm about the file, while there is one."""
        return (self._alarm,) if self._alarm else ()

    def start(self) -> None:
        """Begin to look for changes."""
        if self._file:
            self._loop.start(PERIOD_S, now=False)

    def stop(self) -> None:
        """Look no more."""
        if self._loop.running:
            self._loop.stop()

    async def _look(self) -> None:
        file = self._file
        if file is None:
            return
        seen = await deferToThread(_state, file)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.accounts = await deferToThread(self._read, file)
        except FileUnusable as error:
            self._raise_alarm(error)
        else:
            self._alarm = None
            LOG.info("accounts.reloaded", file=str(file), accounts=len(self.accounts))

    def _read(self, file: Path) -> Accounts:
        """Read the accounts of the file and of the properties. Raises FileUnusable."""
        try:
            with file.open("rb") as opened:
                text = opened.read(LARGEST_BYTES + 1).decode()
        except OSError as error:
            raise FileUnusable(str(file), f"cannot be read ({error.strerror})", key="canal.accounts.file") from error
        except UnicodeDecodeError as error:
            raise FileUnusable(str(file), "is not UTF-8 text") from error
        if len(text) > LARGEST_BYTES:
            raise FileUnusable(str(file), f"has more than {LARGEST_BYTES} bytes")
        return Accounts((*self._of_properties, *parse(text, str(file), self._user)))

    def _raise_alarm(self, error: FileUnusable) -> None:
        text = f"{error}; the node goes on with the accounts read before; correct the file; it is read again by itself"
        self._alarm = ConfigAlarm(
            alarms.REFUSED, "", text, True, time.time(), error.file, error.line, error.key, error.reason
        )
        LOG.error("accounts.refused", error=text)


def _state(file: Path) -> Seen:
    try:
        state = file.stat()
    except OSError as error:
        return str(error.strerror)
    return state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino
