"""Tell: how the rooms below the node report what a person on call should know."""

from __future__ import annotations

from typing import Protocol


class Tell(Protocol):
    """Reports one event; any thread may call it.

    name: name of the event, `subject.verb`.
    alarm: whether a person should look at it.
    facts: further fields of the log line.
    """

    def __call__(self, name: str, /, *, alarm: bool = False, **facts: object) -> None: ...
