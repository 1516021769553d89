"""Steps: a pipeline says what it is about to do, by name, so that a test can end the process exactly there.

segment  manifest  ack  offset        of the source: before each becomes durable or is told
sink  commit                          of a pipeline: in the middle of the sinks; when all of them are done
"""

from __future__ import annotations

from collections.abc import Callable

Steps = Callable[[str], None]


def unobserved(step: str) -> None:
    """Nobody wants to know."""
