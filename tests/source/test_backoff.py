"""Pauses between attempts to connect."""

from random import Random

from canal_ha.source.connection.backoff import LIMIT_S, Backoff


def test_doubles_to_its_limit() -> None:
    """The pauses begin with half a second and double up to ten seconds."""
    backoff = Backoff(lambda: 0.0)
    assert [backoff.delay_s() for _ in range(7)] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_reset_begins_anew() -> None:
    """After reset() the next pause is the shortest one."""
    backoff = Backoff(lambda: 0.0)
    for _ in range(5):
        backoff.delay_s()
    backoff.reset()
    assert backoff.delay_s() == 0.5


def test_jitter_stays_within_a_fifth() -> None:
    """Jitter shortens a pause by at most a fifth."""
    backoff = Backoff(Random(1).random)
    pauses = [backoff.limit_s() for _ in range(200)]
    assert LIMIT_S * 0.8 <= min(pauses) < max(pauses) <= LIMIT_S
