"""Steps: a pipeline announces each step by name, so that a test can end the process exactly there.

segment  manifest  ack  offset        of the source: before each becomes durable or is sent
sink  commit                          of a pipeline: after each sink; after all of them
"""

from __future__ import annotations

from collections.abc import Callable

Steps = Callable[[str], None]


def unobserved(step: str) -> None:
    """Ignore the step."""
