"""The scan of the configuration directory (docs/protocol.md#scan). Reactor thread; files are read in the pool.

A configuration is loaded and checked before anything that runs is touched. One that cannot be used changes nothing: it
is an alarm for as long as the file stays so. Without canal.auto.scan nothing is taken over: every change is an alarm
that asks for a restart.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall, deferLater
from twisted.internet.threads import deferToThread

from canal_ha import logs
from canal_ha.config import alarms
from canal_ha.config.alarms import ConfigAlarm, refused
from canal_ha.config.live import as_started, renewed, waiting_for_restart
from canal_ha.config.load import load_instance, look_at
from canal_ha.config.model import CanalConfig, InstanceConfig, RefusedDestination, Stamp
from canal_ha.config.scan import DirectoryState, compare
from canal_ha.decode.filters import TableFilter
from canal_ha.errors import ConfigError, FileMissing
from canal_ha.node.together import together
from canal_ha.server.audit import REFUSED, Audit

LOG = logs.get(__name__)
SETTLE_MOST_S = 1.0  # a file that does not change for so long is complete; never longer than between two scans
NODE = ""  # the alarm that is about no destination
GONE, UNLISTED = "gone", "unlisted"  # why a destination ends
UNREAD = Stamp(0, 0, 0, 0)  # of a file that is to be read again, whatever its state

check_filter = partial(TableFilter, exclude="")


class Scan:
    """Follows the directory, if the configuration says so, and holds the alarms about it in either case."""

    def __init__(
        self,
        config: CanalConfig,
        reactor: Any,
        configured: dict[str, InstanceConfig],
        begin: Callable[[InstanceConfig], Awaitable[None]],
        end: Callable[[str], Awaitable[None]],
        audit: Audit,
        apply: Callable[[CanalConfig], None],
    ) -> None:
        """config: the node's. configured: what runs or could run here, by name.

        begin: run a destination, or join the race for it.
        end: undo that.
        audit: writes down what changes.
        apply: use the changed settings of the node that need no restart.
        """
        self._started = config
        self._config = config  # with what was taken over from canal.properties since then
        self._applies = config.auto_scan
        self._apply = apply
        self._reactor = reactor
        self._configured = configured
        self._begin = begin
        self._end = end
        self._audit = audit
        self._alarms: dict[str, ConfigAlarm] = {}  # by destination
        self._unread: set[str] = set()  # destinations to read again, whether or not their files change
        self._done: DirectoryState | None = None  # the last look, if nothing of it was left to the next scan
        self._main: Stamp | None = None  # the state of canal.properties that `_main_alarm` is about
        self._main_alarm: ConfigAlarm | None = None
        self._broken = ""
        self._stopped = False
        self._loop = LoopingCall(lambda: Deferred.fromCoroutine(self._look_safely()))
        self._loop.clock = reactor

    @property
    def alarms(self) -> tuple[ConfigAlarm, ...]:
        """What a person must know now, by destination."""
        return tuple(self._alarms[name] for name in sorted(self._alarms))

    @property
    def current(self) -> CanalConfig:
        """The node's configuration, with what was taken over from canal.properties since its start."""
        return self._config if self._applies else self._started

    def start(self, at_start: Iterable[RefusedDestination]) -> None:
        """Tell what was refused when the node started, and begin to look."""
        for each in at_start:
            self._refuse(each.destination, each.error)
        if self._applies or (self._config.main and not self._config.given):
            self._loop.start(self._config.auto_scan_interval_s, now=False)

    def stop(self) -> None:
        """Begin nothing any more."""
        self._stopped = True
        if self._loop.running:
            self._loop.stop()

    def hurry(self) -> None:
        """Look now, and not at the end of the interval. While a look is under way this has no effect."""
        waiting: Any = self._loop.call  # the interface of Twisted has no types
        if waiting is not None and waiting.active():
            waiting.reset(0)

    # ---- one look

    async def _look_safely(self) -> None:
        """Look once. After an error the next scan looks again; the same error is logged once."""
        broken = ""
        try:
            await self._look()
        except Exception as error:
            self._done = None
            broken = repr(error)
            if broken != self._broken:
                LOG.exception("scan.broken", error=broken)
        self._broken = broken

    async def _look(self) -> None:
        before = await self._seen()
        if before == self._done and not self._alarms:
            return
        await deferLater(self._reactor, min(SETTLE_MOST_S, self._config.auto_scan_interval_s))
        seen = await self._seen()
        if self._stopped:
            return
        self._done = seen if seen == before else None
        if seen.problem:
            if before.problem:
                self._set(NODE, self._unreadable(NODE, seen.problem))
            return
        if seen.main_gone:
            if before.main_gone:
                self._set(NODE, self._main_gone(seen.main_gone))
        else:
            await self._look_at_main_file(before, seen)
        known = {
            name: UNREAD if config.stamp and name in self._unread else config.stamp
            for name, config in self._configured.items()
        }
        changes = compare(known, before, seen)
        without_file = [
            destination
            for destination in sorted(self._unread - set(changes.stop))
            if before.missing(destination) and seen.missing(destination)
        ]
        await together(
            *(self._end_gone(destination, GONE) for destination in changes.stop),
            *(self._renew(destination) for destination in (*changes.reload, *changes.start)),
            *(self._renew_without_file(destination) for destination in without_file),
        )
        self._look_at_what_has_no_file(before, seen)

    async def _seen(self) -> DirectoryState:
        return await deferToThread(look_at, self._config.conf_dir, self._config.main_file)

    async def _renew_without_file(self, destination: str) -> None:
        """Load a destination that is set in canal.properties alone, or end it if the list no longer names it."""
        if destination in self._config.listed:
            await self._renew(destination)
            return
        self._unread.discard(destination)
        if destination in self._configured:
            await self._end_gone(destination, UNLISTED)

    async def _end_gone(self, destination: str, reason: str) -> None:
        if not self._applies:
            what = "has no file any more" if reason == GONE else "is no longer in canal.destinations"
            self._wait_for_restart(destination, f"{destination} {what}; it goes on: restart the node to end it")
            return
        LOG.info("scan.stopping", destination=destination, reason=reason)
        self._audit.note("configuration", destination=destination, details={"change": reason})
        self._unread.discard(destination)
        await self._end(destination)

    async def _renew(self, destination: str) -> None:
        """Load a new or changed file; only when it can be used does it take the place of what runs."""
        if not self._applies and destination not in self._config.listed:
            return
        try:
            config, warnings = await deferToThread(load_instance, self._config, destination, os.environ, check_filter)
        except ConfigError as error:
            self._refuse(destination, error)
            return
        except Exception as error:
            self._unforeseen(destination, error)
            return
        if self._stopped:
            return
        running = self._configured.get(destination)
        if running is None or running.stamp != config.stamp:
            for warning in warnings:  # also of a mistyped key, which changes no value
                LOG.warning("config.warning", text=warning)
        if running == config:
            if running.stamp != config.stamp:
                LOG.info("scan.same", destination=destination)
            self._configured[destination] = config
        elif not self._applies:
            text = f"the configuration of {destination} has changed; it goes on with what the node read at its start"
            self._wait_for_restart(destination, f"{text}: restart the node, because canal.auto.scan = false")
            return
        else:
            if running is not None:
                LOG.info("scan.stopping", destination=destination, reason="changed")
                await self._end(destination)
                if self._stopped:
                    return  # type: ignore[unreachable]  # mypy: stop() runs during the await
            LOG.info("scan.starting", destination=destination)
            self._audit.note(
                "configuration", destination=destination, details={"change": "changed" if running else "new"}
            )
            try:
                await self._begin(config)
            except Exception as error:
                await self._end(destination)  # unknown again, so that the next scan tries once more
                self._unforeseen(destination, error)
                return
        self._unread.discard(destination)
        self._set(destination, None)

    async def _look_at_main_file(self, before: DirectoryState, seen: DirectoryState) -> None:
        """Take over a changed canal.properties, and say what waits for a restart."""
        if seen.main == before.main and seen.main != self._main:
            destinations = sorted({*self._configured, *seen.files})
            is_new = self._main or not await deferToThread(as_started, self._started, destinations)
            self._main_alarm = await self._renew_main(destinations) if is_new else None
            self._main = seen.main
        self._set(NODE, self._main_alarm)

    async def _renew_main(self, destinations: Sequence[str]) -> ConfigAlarm | None:
        """Load canal.properties and use what needs no restart. Return the alarm about it."""
        try:
            config, found = await deferToThread(
                renewed, self._started, self._config, destinations, dict(os.environ), check_filter
            )
        except ConfigError as error:
            return alarms.main_refused(error, scanned=self._applies, now=time.time())
        if not self._stopped and texts_of(config) != texts_of(self._config):
            self._take(config)
        waiting = waiting_for_restart(self._started.layers, found, scanned=self._applies)
        return alarms.restart(self._config.main_file, waiting, time.time()) if waiting else None

    def _take(self, config: CanalConfig) -> None:
        before, self._config = self._config, config
        self._unread = {*self._configured, *before.listed, *config.listed}
        if not self._applies:
            return
        for warning in config.warnings:
            if warning not in before.warnings:
                LOG.warning("config.warning", text=warning)
        LOG.info("scan.main_taken", file=config.main_file)
        self._audit.note("configuration", details={"change": "changed", "file": config.main_file})
        self._loop.interval = config.auto_scan_interval_s
        self._apply(config)

    def _look_at_what_has_no_file(self, before: DirectoryState, seen: DirectoryState) -> None:
        """Alarms about files that are not there or cannot be looked at, and the end of those that are over."""
        for name in sorted({*self._configured, *self._config.listed, *self._alarms} - {NODE}):
            running = self._configured.get(name)
            if name in seen.unreadable and name in before.unreadable:
                self._set(name, self._unreadable(name, seen.unreadable[name]))
            elif running is not None and running.stamp == seen.files.get(name) and name not in self._unread:
                self._set(name, None)
            elif running is None and seen.missing(name) and before.missing(name):
                self._set(name, self._gone(name) if name in self._config.listed else None)

    # ---- alarms

    def _refuse(self, destination: str, error: ConfigError) -> None:
        running = destination in self._configured
        self._unread.add(destination)
        if isinstance(error, FileMissing) and not running:
            self._set(destination, self._gone(destination))
            return
        self._set(destination, refused(destination, error, running=running, scanned=self._applies, now=time.time()))

    def _wait_for_restart(self, destination: str, text: str) -> None:
        self._unread.add(destination)
        file = self._config.conf_dir / destination / "instance.properties"
        self._set(destination, ConfigAlarm(alarms.RESTART, destination, text, True, time.time(), str(file)))

    def _unforeseen(self, destination: str, error: Exception) -> None:
        """Report an unexpected error. The destination stays as it was; the scan continues with the others."""
        running = destination in self._configured
        self._unread.add(destination)
        state = "goes on as it was" if running else "does not run on this node"
        text = f"{destination} could not be loaded and started: {error!r}; it {state}; the next scan tries again"
        if self._set(destination, ConfigAlarm(alarms.REFUSED, destination, text, running, time.time())):
            LOG.error("scan.unforeseen", destination=destination, exc_info=error)

    def _unreadable(self, name: str, problem: str) -> ConfigAlarm:
        running = not name or name in self._configured
        state = f"{name or 'the node'} goes on with what was read before" if running else f"{name} does not run here"
        text = f"{problem}; {state}; make it readable; the next scan reads it"
        return ConfigAlarm(alarms.UNREADABLE, name, text, running, time.time(), reason=problem)

    def _main_gone(self, reason: str) -> ConfigAlarm:
        text = (
            f"{reason}; the node goes on with what it read at its start and follows changed and new instance files, but"
            " ends no destination whose file is gone as well; restore the file"
        )
        return ConfigAlarm(alarms.UNREADABLE, NODE, text, True, time.time(), str(self._config.main_file), reason=reason)

    def _gone(self, name: str) -> ConfigAlarm:
        file = self._config.conf_dir / name / "instance.properties"
        text = (
            f"{file} does not exist, but canal.destinations lists {name}; it does not run on this node; restore the"
            f" file, or remove {name} from canal.destinations in {self._config.main_file}"
        )
        return ConfigAlarm(alarms.GONE, name, text, False, time.time(), str(file), reason="no such file")

    def _set(self, name: str, alarm: ConfigAlarm | None) -> bool:
        """Set or clear the alarm of a destination. Return whether that changed anything, and so was logged."""
        known = self._alarms.get(name)
        if alarm is None:
            if known is None:
                return False
            del self._alarms[name]
            LOG.info(f"scan.{known.alarm}_over", **_about(name), alarm=known.text)
            return True
        if known is not None and known.text == alarm.text:
            return False
        self._alarms[name] = alarm
        LOG.error(f"scan.{alarm.alarm}", **_about(name), error=alarm.text)
        self._audit.note(
            "configuration", REFUSED, destination=name, details={"change": alarm.alarm, "error": alarm.text}
        )
        return True


def texts_of(config: CanalConfig) -> dict[str, str]:
    """Return the settings of canal.properties without their places."""
    return {key: setting.text for key, setting in config.main.items()}


def _about(name: str) -> dict[str, str]:
    """The key of a log line that says which destination it is about; none where it is the node."""
    return {"destination": name} if name else {}
