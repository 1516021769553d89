"""What a person must know about configuration that a node does not run with: pure data, made by the node's scan."""

from __future__ import annotations

from dataclasses import dataclass

from canal_ha.errors import ConfigError

REFUSED = "refused"  # the file cannot be used
UNREADABLE = "unreadable"  # nobody can tell what the file says, or whether it is there
GONE = "gone"  # canal.destinations names a destination without a file
RESTART = "restart"  # canal.properties is not what the node read at its start


@dataclass(frozen=True, slots=True)
class ConfigAlarm:
    """The configuration in a file is not the one that runs.

    alarm: refused, unreadable, gone or restart.
    destination: name of the destination; "" for an alarm of the node itself.
    text: what happened, where, what runs meanwhile, and what to do.
    running: whether the destination goes on with what was read before.
    file: the file that cannot be used; "" where none is to blame.
    line: in that file, from 1; 0 where no line is to blame.
    key: the key that cannot be used; "" where none is to blame.
    reason: what is wrong with it.
    since: when it began, s since 1970.
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
    """The file of a destination cannot be used.

    running: whether it goes on with what was read before.
    scanned: whether the node reads the file again by itself.
    now: s since 1970.
    """
    state = "goes on with the configuration read before" if running else "does not run on this node"
    then = "it is read again by itself" if scanned else "restart the node"
    text = f"{error}; {destination} {state}; correct it, then {then}"
    return ConfigAlarm(REFUSED, destination, text, running, now, error.file, error.line, error.key, error.reason)
