"""Work of a command in threads that its end does not wait for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def in_daemons(calls: Iterable[Callable[[], T]], most: int) -> Iterator[T]:
    """Yield the results of calls in their order. An interrupt ends the command while they hang.

    calls: what to call. Those that have not begun when the caller stops reading are left out.
    most: how many are under way at the same time.
    """
    waiting = deque((call, Future[T]()) for call in calls)
    answers = [answer for _, answer in waiting]

    def work() -> None:
        while True:
            try:
                call, answer = waiting.popleft()
            except IndexError:
                return
            try:
                answer.set_result(call())
            except BaseException as error:
                answer.set_exception(error)

    for _ in range(min(most, len(answers))):
        Thread(target=work, daemon=True).start()  # a pool's threads are waited for at the end of the process
    try:
        for answer in answers:
            yield answer.result()
    finally:
        waiting.clear()
