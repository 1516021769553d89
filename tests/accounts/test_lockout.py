"""Failed logins cost time, for their account and address alone, and bounded memory."""

from __future__ import annotations

import pytest

from canal_ha.accounts.lockout import (
    FORGOTTEN_AFTER_S,
    FREE_FAILURES,
    KNOWN_FOR_S,
    KNOWN_KEPT,
    LONGEST_SHARED_WAIT_S,
    LONGEST_WAIT_S,
    NAMES_KEPT,
    ORIGINS_KEPT,
    Lockout,
)


def test_the_wait_doubles_up_to_a_minute_and_ends_with_a_login() -> None:
    """The first failures cost nothing, later ones twice as much each; others do not wait; a login ends the wait."""
    lockout, now, waits = Lockout(), 0.0, []
    for _ in range(FREE_FAILURES + 10):
        lockout.failed("canal", "/10.0.0.9", now)
        waits.append(lockout.wait_s("canal", "/10.0.0.9", now))
        now += waits[-1]
        assert not lockout.wait_s("canal", "/10.0.0.9", now)
    assert waits[: FREE_FAILURES + 3] == [0.0] * (FREE_FAILURES - 1) + [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == LONGEST_WAIT_S
    lockout.failed("canal", "/10.0.0.9", now)
    assert not lockout.wait_s("canal", "/10.0.0.1", now)
    assert not lockout.wait_s("other", "/10.0.0.9", now)
    lockout.succeeded("canal", "/10.0.0.9", now)
    assert not lockout.wait_s("canal", "/10.0.0.9", now)


@pytest.mark.parametrize("made_up", [0, 2 * NAMES_KEPT])
def test_a_login_of_the_owner_gives_a_neighbour_one_guess_and_not_ten(made_up: int) -> None:
    """Behind the same address, with an owner who logs in each second: 864,000 passwords a day were looked at."""
    lockout, seconds, looked_at = Lockout(), 600, 0
    lockout.succeeded("shop", "/10.0.0.9", 0.0)
    for second in range(seconds):
        now = float(second)
        for number in range(made_up):
            lockout.failed(f"made up {number}", "/10.0.0.9", now)
        assert _looked_at(lockout, now)  # the owner
        lockout.succeeded("shop", "/10.0.0.9", now)
        for _ in range(2 * FREE_FAILURES):
            if _looked_at(lockout, now):
                looked_at += 1
                lockout.failed("shop", "/10.0.0.9", now)
    assert seconds <= looked_at <= seconds + FREE_FAILURES


def _looked_at(lockout: Lockout, now: float) -> bool:
    return not lockout.wait_s("shop", "/10.0.0.9", now) or lockout.spares("shop", "/10.0.0.9", now)


def test_failures_are_forgotten_and_bounded() -> None:
    """Old failures do not count, and a crowd of addresses takes bounded memory."""
    lockout = Lockout()
    for _ in range(FREE_FAILURES):
        lockout.failed("canal", "/10.0.0.9", 0.0)
    lockout.failed("canal", "/10.0.0.9", FORGOTTEN_AFTER_S + 1)
    assert not lockout.wait_s("canal", "/10.0.0.9", FORGOTTEN_AFTER_S + 1)
    for number in range(2 * ORIGINS_KEPT):
        lockout.failed("canal", f"/{number}", 0.0)
    assert len(lockout) == ORIGINS_KEPT


def test_names_are_bounded_and_forgotten() -> None:
    """Names beyond a number share one count, which a login does not end, and they have their own again later."""
    lockout = Lockout()
    for number in range(2 * NAMES_KEPT):
        lockout.failed(f"{number}" * 1000, "/10.0.0.9", 0.0)
    for number in range(FREE_FAILURES):
        lockout.failed(f"further{number}", "/10.0.0.9", LONGEST_SHARED_WAIT_S * number)
    now = LONGEST_SHARED_WAIT_S * FREE_FAILURES
    lockout.failed("further", "/10.0.0.9", now)
    assert lockout.wait_s("other", "/10.0.0.9", now) == LONGEST_SHARED_WAIT_S
    assert not lockout.spares("other", "/10.0.0.9", now)
    lockout.succeeded("other", "/10.0.0.9", now)
    assert lockout.wait_s("other", "/10.0.0.9", now) == LONGEST_SHARED_WAIT_S
    assert lockout.spares("other", "/10.0.0.9", now)
    assert len(lockout) == NAMES_KEPT + 2
    assert not lockout.wait_s("0" * 1000, "/10.0.0.9", 0.0)
    later = now + FORGOTTEN_AFTER_S + 1
    lockout.failed("other", "/10.0.0.9", later)
    assert not lockout.wait_s("other", "/10.0.0.9", later)
    assert len(lockout) == 2


def test_names_that_logged_in_are_bounded_and_forgotten() -> None:
    """A day after its last login a name is a stranger; many take bounded memory."""
    lockout = Lockout()
    for number in range(2 * KNOWN_KEPT):
        lockout.succeeded("canal", f"/{number}", 0.0)
    assert len(lockout) == KNOWN_KEPT
    lockout.succeeded("other", "/10.0.0.9", KNOWN_FOR_S + 1)
    assert len(lockout) == 1
