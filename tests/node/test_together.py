"""Endings that are carried out side by side."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from canal_ha.node.together import together


def test_an_ending_that_fails_skips_no_other_one() -> None:
    """The node waits for all of them, and tells the first failure."""
    slow, over = Deferred[None](), []

    async def fails(text: str) -> None:
        raise OSError(text)

    async def ends() -> None:
        await slow
        over.append(True)

    ended = Deferred.fromCoroutine(together(fails("first"), ends(), fails("second")))
    failures: list[BaseException] = []

    def failed(failure: Failure) -> None:
        assert failure.value
        failures.append(failure.value)

    ended.addErrback(failed)
    assert not ended.called
    slow.callback(None)
    assert over
    (failure,) = failures
    with pytest.raises(OSError, match="first"):
        raise failure
