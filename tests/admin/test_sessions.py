"""Sessions of the page: they end, and they are few."""

from __future__ import annotations

from twisted.internet.task import Clock

from canal_ha.admin.sessions import ACCOUNT_MOST, IDLE_S, MOST, WHOLE_S, Sessions


def test_a_session_ends_when_nobody_uses_it() -> None:
    """Refreshes of the page by itself do not keep it open; no session lasts longer than half a day."""
    clock = Clock()
    sessions = Sessions(clock)
    cookie, session = sessions.open("admin", "Basic x")
    clock.advance(IDLE_S - 1)
    assert sessions.find(cookie, used=False) is session
    clock.advance(2)
    assert sessions.find(cookie, used=True) is None
    cookie, _ = sessions.open("admin", "Basic x")
    for _ in range(int(WHOLE_S // (IDLE_S / 2)) - 1):
        clock.advance(IDLE_S / 2)
        assert sessions.find(cookie, used=True)
    clock.advance(IDLE_S / 2)
    assert sessions.find(cookie, used=True) is None
    assert not len(sessions)


def test_nobody_logs_others_out_by_logging_in_often() -> None:
    """Beyond its limit an account loses its own sessions; beyond the limit of all, the one unused longest ends."""
    sessions = Sessions(Clock())
    first, _ = sessions.open("first", "Basic x")
    for _ in range(MOST * 2):
        sessions.open("busy", "Basic x")
    assert len(sessions) == 1 + ACCOUNT_MOST
    assert sessions.find(first, used=True)
    for number in range(MOST):
        sessions.open(f"account {number}", "Basic x")
    assert len(sessions) == MOST


def test_a_session_shows_no_secret() -> None:
    """Its text has neither the login nor the proof of its forms."""
    _, session = Sessions(Clock()).open("admin", "Basic geheim")
    assert "geheim" not in repr(session)
    assert session.csrf not in repr(session)
