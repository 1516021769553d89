"""Detecting: asks the source regularly whether it lives, over a connection of its own, in a thread of its own.

canal.instance.detecting.*: a statement every `interval.time` seconds. No answer within that time is a failure, too: a
server that hangs accepts connections.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from canal_ha.config.model import InstanceConfig
from canal_ha.errors import CanalError
from canal_ha.source.connection.flavor import check, examine
from canal_ha.source.connection.session import Interruptible, SourceSession

DEADLINE_LEAST_S = 1.0


class Detecting:
    """config: of the source of now, asked for before each question; answered, failed: told from the thread."""

    def __init__(
        self,
        config: Callable[[], InstanceConfig],
        answered: Callable[[], None],
        failed: Callable[[CanalError], None],
        *,
        opening: Callable[[Interruptible], None],
    ) -> None:
        self._config = config
        self._answered = answered
        self._failed = failed
        self._opening = opening
        self._stopping = threading.Event()
        self._session: SourceSession | None = None
        self._of: InstanceConfig | None = None  # whose source the session asks
        name = f"detecting-{config().destination}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the first question comes after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end; returns at once. A question under way is interrupted by whoever was told of its connection."""
        self._stopping.set()

    # ---- the thread

    def _run(self) -> None:
        interval_s = self._config().detecting_interval_s
        asked_at = time.monotonic()
        while not self._stopping.wait(max(0.0, asked_at + interval_s - time.monotonic())):
            asked_at = time.monotonic()
            config = self._config()
            try:
                self._ask(config)
            except CanalError as error:
                self._close()
                if not self._stopping.is_set() and config is self._config():
                    self._failed(error)
            else:
                self._answered()
        self._close()

    def _ask(self, config: InstanceConfig) -> None:
        if self._session is None or self._of is not config:
            self._close()
            self._session, self._of = SourceSession(hasty(config), config.master, opening=self._opening), config
        self._session.query(config.detecting_sql)

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def probe(config: InstanceConfig, *, statement: bool, opening: Callable[[Interruptible], None]) -> None:
    """Whether the configured master could be read from now. statement: also run the detecting one.

    Raises SourceUnavailable, SourceRefused.
    """
    session = SourceSession(hasty(config), config.master, opening=opening)
    try:
        check(examine(session), config, session.where.address)
        if statement:
            session.query(config.detecting_sql)
    finally:
        session.close()


def hasty(config: InstanceConfig) -> InstanceConfig:
    """With the patience of a question that comes every interval."""
    return replace(config, so_timeout_s=min(config.so_timeout_s, max(DEADLINE_LEAST_S, config.detecting_interval_s)))
