"""A cursor that cannot be read: its client waits for an operator, and the others go on."""

from __future__ import annotations

import pytest

from canal_ha.errors import MetaUnreadable
from canal_ha.meta.repository import Snapshot
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from tests.instance.test_stop import IDENTITY, Bench
from tests.instance.test_stream import now

OTHER = ClientIdentity("example", 7, "")
CURSOR = LogPosition("mysql-bin.000001", 500)


def bench() -> Bench:
    """Return a running instance with two clients; the cursor of 1001 cannot be read."""
    return Bench(snapshot=Snapshot({7: OTHER}, {7: CURSOR}, unreadable={1001: "…/1001/cursor: broken"}))


def test_a_client_whose_cursor_cannot_be_read_does_not_begin_anew() -> None:
    """Its SUBSCRIBE and GET name the znode, and nothing is written over the cursor. The other client goes on."""
    it = bench()
    assert now(it.embedded.subscribe(OTHER)) == CURSOR
    with pytest.raises(MetaUnreadable, match="1001/cursor"):
        now(it.embedded.subscribe(IDENTITY))
    with pytest.raises(MetaUnreadable, match="1001/cursor"):
        now(it.embedded.get(IDENTITY, GetRequest(1, 0.0)))
    it.pass_time(20)
    assert 1001 not in it.store.snapshot.cursors
    assert it.store.snapshot.start is None


def test_a_client_goes_on_when_an_operator_has_corrected_its_cursor() -> None:
    """It starts at the corrected cursor, without a restart."""
    it = bench()
    it.instance.client_mended(IDENTITY, CURSOR)
    assert now(it.embedded.subscribe(IDENTITY)) == CURSOR


def test_a_client_begins_afresh_when_an_operator_has_deleted_its_cursor() -> None:
    """It gets a start as a new client does."""
    it = bench()
    it.instance.client_mended(IDENTITY, None)
    assert now(it.embedded.subscribe(IDENTITY)) is not None


def test_a_client_can_unsubscribe_though_its_cursor_cannot_be_read() -> None:
    """Its cursor is removed, and a later subscription is that of a new client."""
    it = bench()
    now(it.embedded.unsubscribe(IDENTITY))
    assert 1001 not in it.store.snapshot.clients
    assert now(it.embedded.subscribe(IDENTITY)) is not None
