"""Which connection consumes with a client id."""

from __future__ import annotations

from canal_ha.instance.stream import WAITING_MOST
from canal_ha.model.identity import ClientIdentity
from canal_ha.server.consumers import Consumers

ONE, TWO = ClientIdentity("example", 1001), ClientIdentity("example", 1002)


def test_the_newest_connection_consumes_until_it_is_lost() -> None:
    """After it, the newest of those that are open does. A connection that only asks is open too."""
    consumers = Consumers()
    assert (consumers.newest(ONE), consumers.others(ONE, "first")) == (None, False)
    consumers.began(ONE, "first")
    consumers.began(TWO, "first")
    consumers.began(ONE, "second")
    assert (consumers.newest(ONE), consumers.newest(TWO)) == ("second", "first")
    assert consumers.others(ONE, "first")
    assert not consumers.others(TWO, "first")
    consumers.asks(TWO, "third")
    assert (consumers.newest(TWO), consumers.others(TWO, "first")) == ("first", True)
    consumers.lost("first")
    assert (consumers.newest(ONE), consumers.newest(TWO)) == ("second", "third")
    assert not consumers.others(ONE, "second")
    consumers.lost("second")
    consumers.lost("third")
    assert (consumers.newest(ONE), consumers.newest(TWO)) == (None, None)


def test_what_the_node_took_back_by_itself_waits_for_no_lost_connection() -> None:
    """It was for the newest open connection, which had only asked. When that one is lost too, others may get it."""
    consumers = Consumers()
    for connection in ("first", "second"):
        consumers.asks(ONE, connection)
    with consumers.rolling_back(ONE, consumers.newest(ONE), 3):
        pass
    assert consumers.keeps_back(ONE, "first")
    consumers.lost("second")
    assert not consumers.keeps_back(ONE, "first")


def test_a_client_id_is_crowded_when_too_many_of_its_gets_wait() -> None:
    """A roll-back ends all of them at once."""
    consumers = Consumers()
    for number in range(WAITING_MOST):
        consumers.waits(ONE, f"connection {number}", lambda: None)
    assert not consumers.crowded(ONE)
    consumers.waits(ONE, "one more", lambda: None)
    assert consumers.crowded(ONE)
    assert not consumers.crowded(TWO)
    consumers.waits_no_more(ONE, "one more")
    assert not consumers.crowded(ONE)
    for number in range(WAITING_MOST):
        consumers.waits_no_more(ONE, f"connection {number}")
    assert consumers.__dict__ == Consumers().__dict__


def test_nothing_is_kept_of_what_is_over() -> None:
    """A client that subscribes and unsubscribes with many ids takes no memory."""
    consumers = Consumers()
    for number in range(100):
        identity = ClientIdentity("example", number)
        consumers.began(identity, "first")
        consumers.began(identity, "second")
        consumers.removed(identity)
    consumers.lost("first")
    consumers.lost("second")
    assert consumers.__dict__ == Consumers().__dict__
