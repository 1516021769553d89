"""Detecting: checks regularly whether the source answers, over its own connection, in its own thread.

canal.instance.detecting.*: runs a statement every `interval.time` seconds. No answer within that time is a failure as
well, because a server that hangs still accepts connections.
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
    """The check of one destination's source. The thread makes all calls.

    config: returns the configuration of the current source; called before each check.
    answered: called after a successful check.
    failed: called with the configuration that a failed check used, and the error.
    opening: called with each connection before it connects.
    """

    def __init__(
        self,
        config: Callable[[], InstanceConfig],
        answered: Callable[[], None],
        failed: Callable[[InstanceConfig, CanalError], None],
        *,
        opening: Callable[[Interruptible], None],
    ) -> None:
        self._config = config
        self._answered = answered
        self._failed = failed
        self._opening = opening
        self._stopping = threading.Event()
        self._session: SourceSession | None = None
        self._of: InstanceConfig | None = None  # the configuration that the session was opened with
        name = f"detecting-{config().destination}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; the first check comes after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end and return at once. The owner interrupts a running check through its connection."""
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
                if not self._stopping.is_set():
                    self._failed(config, error)
            else:
                self._answered()
        self._close()

    def _ask(self, config: InstanceConfig) -> None:
        if self._session is None or self._of is not config:
            self._close()
            self._session, self._of = (
                SourceSession(with_short_timeout(config), config.master, opening=self._opening),
                config,
            )
        self._session.query(config.detecting_sql)

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def probe(config: InstanceConfig, *, statement: bool, opening: Callable[[Interruptible], None]) -> None:
    """Check whether the configured master can be read now.

    config: of the destination.
    statement: whether to run the detecting statement as well.
    opening: called with the connection before it connects.
    Raises SourceUnavailable, SourceRefused.
    """
    session = SourceSession(with_short_timeout(config), config.master, opening=opening)
    try:
        check(examine(session), config, session.where.address)
        if statement:
            session.query(config.detecting_sql)
    finally:
        session.close()


def with_short_timeout(config: InstanceConfig) -> InstanceConfig:
    """Return the configuration with a read time-out of one interval, at least DEADLINE_LEAST_S."""
    return replace(config, so_timeout_s=min(config.so_timeout_s, max(DEADLINE_LEAST_S, config.detecting_interval_s)))
