"""Wakeup: no wake-up is lost when two threads use it."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from canal_ha.instance.wakeup import Wakeup


@pytest.mark.parametrize("line", range(1, 6))
def test_data_of_a_shared_dump_while_the_stream_joins_it_wakes_the_reactor(line: int) -> None:
    """The stream's own thread ends its work between two lines of the call on the shared dump's thread."""
    woken: list[int] = []
    wakeup = Wakeup(lambda: woken.append(1))
    reached, ended = threading.Event(), threading.Event()
    first = Wakeup.data.__code__.co_firstlineno

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not Wakeup.data.__code__:
            return None
        if event == "line" and frame.f_lineno == first + line:
            reached.set()
            ended.wait(5.0)
        return trace

    def shared_dump() -> None:
        sys.settrace(trace)
        wakeup.data(False)
        reached.set()

    wakeup.busy(True)
    thread = threading.Thread(target=shared_dump)
    thread.start()
    assert reached.wait(5.0)
    wakeup.busy(False)
    ended.set()
    thread.join()
    assert woken
