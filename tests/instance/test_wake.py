"""A Wake does for one waiting coroutine what a Deferred does."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from canal_ha.errors import NotRunningHere
from canal_ha.instance.wake import Awaited, Wake


class Driver:
    """Drives a coroutine as a conversation does, and notes how it ends."""

    def __init__(self, awaited: Awaited) -> None:
        self.ended: list[object] = []
        self._steps: Coroutine[Any, None, None] = self._wait(awaited)
        self.step(None)

    def step(self, result: object) -> None:
        try:
            if isinstance(result, Failure):
                awaited = result.throwExceptionIntoGenerator(self._steps)
            else:
                awaited = self._steps.send(None)
        except StopIteration:
            return
        awaited.addBoth(self.step)

    async def _wait(self, awaited: Awaited) -> None:
        try:
            await awaited
            self.ended.append(None)
        except Exception as error:
            self.ended.append(type(error))


@pytest.mark.parametrize("make", [Wake, Deferred])
@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (lambda awaited: awaited.callback(None), None),
        (lambda awaited: awaited.errback(NotRunningHere("example")), NotRunningHere),
        (lambda awaited: awaited.cancel(), CancelledError),
    ],
)
@pytest.mark.parametrize("before", [False, True])
def test_ends(make: Callable[[], Awaited], end: Callable[[Awaited], None], expected: object, before: bool) -> None:
    """The coroutine goes on once, with the result or the error, whether it waits before that or after."""
    awaited = make()
    if before and not (make is Deferred and expected):  # a Deferred without a callback logs its error
        end(awaited)
        assert Driver(awaited).ended == [expected]
        return
    driver = Driver(awaited)
    assert not driver.ended
    called = [awaited.called]
    end(awaited)
    assert driver.ended == [expected]
    assert [*called, awaited.called] == [False, True]
    awaited.cancel()
    assert driver.ended == [expected]


@pytest.mark.parametrize("make", [Wake, Deferred])
def test_a_callback_that_comes_late_is_called_at_once(make: Callable[[], Awaited]) -> None:
    """The wait can be over before its driver adds the callback."""
    awaited, called = make(), list[object]()
    awaited.callback(None)
    awaited.addBoth(called.append)
    assert called == [None]
