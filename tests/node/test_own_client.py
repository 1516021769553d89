"""The node's own client, without a reactor."""

from __future__ import annotations

from collections.abc import Callable

from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.node.own_client import OwnSource
from tests.instance.test_regained import OneNode

IDENTITY = ClientIdentity("example", 1001)


class AtOnce:
    """A reactor that does what another thread asks in that thread."""

    def callFromThread(self, call: Callable[[], object], /) -> None:
        """Call it."""
        call()


def test_the_end_of_an_old_flow_takes_no_batches_from_its_successor() -> None:
    """The node lost its destination while a flow was committing, and regained it."""
    node = OneNode()
    source = OwnSource(node.embedded, AtOnce(), IDENTITY, exact=False)
    node.claim()
    old, new = source.client(lambda cursor: None), source.client(lambda cursor: None)
    old.connect()
    node.lose()
    old.disconnect()  # no error while it does not run here
    node.claim()
    new.connect()
    batch = source.get(GetRequest(100, 0.0), node.embedded.era(IDENTITY))
    old.disconnect()
    assert node.in_flight(1001) == (batch.batch_id,)
    new.disconnect()
    assert node.in_flight(1001) == ()
    node.lose()
