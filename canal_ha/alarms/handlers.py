"""Handlers: where notices go, from a TOML file.

    [handlers.pager]
    type = "webhook"
    url = "https://hooks.example/canal"

The type is log, mail or webhook, or the name of an entry point in the group `canal_ha.alarm_handlers`. It is called
with the other keys of the table, as keyword arguments, and returns an AlarmHandler. It raises TypeError or ValueError
for wrong ones.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from canal_ha import logs
from canal_ha.alarms.mail import MailHandler
from canal_ha.alarms.notice import Notice
from canal_ha.alarms.webhook import WebhookHandler
from canal_ha.config.small_files import read_small
from canal_ha.errors import FileUnusable

GROUP = "canal_ha.alarm_handlers"


class AlarmHandler(Protocol):
    """Sends notices."""

    def send(self, notice: Notice) -> None:
        """Send one notice. It may block for some seconds. Any exception means that it was not sent."""
        ...


class LogHandler:
    """Writes notices into canal.log, as canal's LogAlarmHandler does."""

    def send(self, notice: Notice) -> None:
        """Write one line."""
        log = logs.get(__name__)
        write = log.warning if notice.begins else log.info
        write("alarm.notice", title=notice.title, text=notice.text, runbook=notice.runbook)


BUILT_IN: Mapping[str, Callable[..., AlarmHandler]] = {
    "log": LogHandler,
    "mail": MailHandler,
    "webhook": WebhookHandler,
}


def read_handlers(file: Path) -> Mapping[str, AlarmHandler]:
    """Return the handlers of a file, by name. Raises FileUnusable."""
    try:
        document = tomllib.loads(read_small(file).decode())
    except (OSError, ValueError) as error:
        raise FileUnusable(str(file), f"cannot be read: {error}") from error
    tables = document.get("handlers")
    if set(document) != {"handlers"} or not isinstance(tables, dict) or not tables:
        raise FileUnusable(str(file), "has tables [handlers.NAME], at least one, and nothing else")
    return {name: _handler(file, name, table) for name, table in tables.items()}


def _handler(file: Path, name: str, table: Any) -> AlarmHandler:
    if not isinstance(table, dict) or not isinstance(table.get("type"), str):
        raise FileUnusable(str(file), f"handlers.{name} has no type, such as webhook or mail")
    settings = {key: value for key, value in table.items() if key != "type"}
    kind, others = table["type"], {each.name: each for each in entry_points(group=GROUP)}
    if kind not in BUILT_IN and kind not in others:
        types = ", ".join(sorted({*BUILT_IN, *others}))
        raise FileUnusable(str(file), f"handlers.{name} has the type {kind}; there are {types}")
    try:
        make = BUILT_IN[kind] if kind in BUILT_IN else others[kind].load()
        made: AlarmHandler = make(**settings)
    except (ImportError, AttributeError, TypeError, ValueError, OSError) as error:
        raise FileUnusable(str(file), f"handlers.{name} cannot be used: {error}") from error
    return made
