"""Tell: how the rooms below the node report what a person on call should know."""

from __future__ import annotations

from typing import Protocol


class Tell(Protocol):
    """Takes one event; any thread may call it.

    name: of the event, `subject.verb`.
    alarm: whether a person should look.
    facts: what the log line says besides.
    """

    def __call__(self, name: str, /, *, alarm: bool = False, **facts: object) -> None: ...
