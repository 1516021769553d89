"""How fast the feeds of one client id, or the private reads of one account, may begin."""

from __future__ import annotations

from twisted.internet.task import Clock

from canal_ha.instance.feed_pace import BEGUN_MOST, BEGUN_S, KEPT, FeedPaces


def test_a_client_id_that_comes_back_keeps_its_pace() -> None:
    """UNSUBSCRIBE and SUBSCRIBE in turns make a new stream each time. Another client id does not wait."""
    clock = Clock()
    paces = FeedPaces(clock.seconds)
    begun = 0
    for _ in range(1000):
        pace = paces.of(1001)
        if not pace.wait_s:
            pace.begins()
            begun += 1
        clock.advance(0.01)
    assert begun == BEGUN_MOST
    assert paces.of(1002).wait_s == 0.0


def test_paces_of_many_client_ids_take_a_bounded_amount_of_memory() -> None:
    """Only those that matter are kept: the others would be as new ones are."""
    clock = Clock()
    paces = FeedPaces(clock.seconds)
    for number in range(10 * KEPT):
        paces.of(number).begins()
        clock.advance(0.1)
    assert len(paces._paces) <= KEPT + BEGUN_S / 0.1
