"""AlarmDelivery: sends notices with a handler in a thread of its own, so that a slow receiver stops nobody."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Full, Queue

from canal_ha import logs
from canal_ha.alarms.handlers import AlarmHandler
from canal_ha.alarms.notice import Notice

LOG = logs.get(__name__)
WAITING_MOST = 100  # notices
PAUSES_S = (1.0, 5.0, 30.0)  # before the second, third and fourth attempt


class AlarmDelivery:
    """One handler with its queue. A notice that finds the queue full is lost, and counted in `lost`."""

    def __init__(self, name: str, handler: AlarmHandler, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        """Make a delivery that waits for `start`.

        name: of the handler, for the log.
        handler: sends.
        pauses_s: between attempts; after the last one the notice is lost.
        """
        self.lost = 0
        self._name = name
        self._handler = handler
        self._pauses_s = pauses_s
        self._waiting: Queue[Notice | None] = Queue(WAITING_MOST)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"alarms {name}", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def put(self, notice: Notice) -> None:
        """Take a notice. Any thread; never blocks."""
        try:
            self._waiting.put_nowait(notice)
        except Full:
            self.lost += 1

    def end(self) -> None:
        """Send what waits with one attempt each, and nothing more. Never blocks."""
        self._closing.set()
        with suppress(Full):
            self._waiting.put_nowait(None)

    @property
    def running(self) -> bool:
        """Whether something may still be sent."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while (notice := self._waiting.get()) is not None:
            self._send(notice)

    def _send(self, notice: Notice) -> None:
        for pause_s in (*self._pauses_s, None):
            try:
                self._handler.send(notice)
                return
            except Exception as error:  # a handler of another package may raise anything
                failure = f"{type(error).__name__}: {error}"
            if pause_s is None or self._closing.wait(pause_s):
                break
        self.lost += 1
        LOG.error("alarm.not_sent", handler=self._name, title=notice.title, error=failure)
