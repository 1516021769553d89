"""Alarms about files that differ from the running configuration, and about the audit log. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from canal_ha.config.live import Difference
from canal_ha.errors import ConfigError

REFUSED = "refused"  # the file cannot be used
UNREADABLE = "unreadable"  # it is unknown what the file says, or whether it exists
GONE = "gone"  # canal.destinations lists a destination without a file
AUDIT = "audit"  # the audit log cannot be written, or not rotated
CLOSED = "closed"  # canal.properties opens canal's admin port with a password that everybody knows
CERTIFICATE = "certificate"  # the files of canal.tls.* cannot be used, at SIGHUP
RESTART = "restart"  # a file has changed, and the node uses the change only after a restart


@dataclass(frozen=True, slots=True)
class ConfigAlarm:
    """A file differs from the running configuration.

    alarm: refused, unreadable, gone, restart, closed, certificate or audit.
    destination: name of the destination; "" for an alarm of the node itself.
    text: what happened, where, which configuration runs, and what to do.
    running: whether the destination keeps running with the previous configuration.
    file: the unusable file; "" if there is none.
    line: line number in that file, from 1; 0 if there is none.
    key: the invalid key; "" if there is none.
    reason: what is wrong with the file or key.
    since: when the alarm began, s since 1970.
    """

    alarm: str
    destination: str
    text: str
    running: bool
    since: float
    file: str = ""
    line: int = 0
    key: str = ""
    reason: str = ""


def refused(destination: str, error: ConfigError, *, running: bool, scanned: bool, now: float) -> ConfigAlarm:
    """Return the alarm for a destination whose file cannot be used.

    destination: its name.
    error: what is wrong with the file.

    running: whether the destination keeps running with the previous configuration.
    scanned: whether the node rereads the file by itself.
    now: s since 1970.
    """
    state = "goes on with the configuration read before" if running else "does not run on this node"
    then = "the next scan reads it" if scanned else "then restart the node"
    text = f"{error}; {destination} {state}; correct the file; {then}"
    return ConfigAlarm(REFUSED, destination, text, running, now, error.file, error.line, error.key, error.reason)


def main_refused(error: ConfigError, *, scanned: bool, now: float) -> ConfigAlarm:
    """Return the alarm for a canal.properties that cannot be used; the arguments are those of `refused`."""
    then = "the next scan reads it" if scanned else "then restart the node"
    text = (
        f"{error}; the node goes on with what it read before, and would not run like this after a restart; correct the"
        f" file; {then}"
    )
    return ConfigAlarm(REFUSED, "", text, True, now, error.file, error.line, error.key, error.reason)


def restart(file: Path, waiting: Sequence[Difference], now: float) -> ConfigAlarm:
    """Return the alarm for keys of canal.properties that a running node does not take over.

    file: canal.properties.
    waiting: the keys, at least one.
    now: s since 1970.
    """
    first = waiting[0]
    where = f"{file}:{first.line}" if first.line else str(file)
    reason = f"needs a restart: {', '.join(map(str, waiting))}"
    return ConfigAlarm(RESTART, "", f"{where} {reason}", True, now, str(file), first.line, first.key, reason)
