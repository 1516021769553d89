"""Waiting for a condition on real servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(look: Callable[[], T | None], *, seconds: float = 20.0, what: str = "it") -> T:
    """Call `look` until it returns neither None nor False; return its answer. Fail the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = look()
        if answer is not None and answer is not False:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {seconds} s")
        time.sleep(0.05)
