"""Replica identities: stable, distinct, and without conflicts with other replicas."""

from itertools import islice

import pytest

from canal_ha.source.connection.identity import NAME_BYTES_MAX, Replica, free_server_id, replica


def test_identity_is_the_same_on_every_node() -> None:
    """A stream has the same identity on every node, so that a new owner's dump ends the old one's."""
    assert replica("example", 1001) == replica("example", 1001)
    assert list(islice(replica("example", 1001).server_ids(), 5)) == list(
        islice(replica("example", 1001).server_ids(), 5)
    )


def test_streams_and_private_reads_differ() -> None:
    """Every destination, client id and private read has its own uuid, name and derived server id."""
    all_of_them = [
        replica("example", 1001),
        replica("example", 1002),
        replica("other", 1001),
        replica("example", 1001, read="1"),
        replica("example", 1001, read="2"),
    ]
    assert len({one.uuid for one in all_of_them}) == 5
    assert len({one.name for one in all_of_them}) == 5
    assert len({next(one.server_ids()) for one in all_of_them}) == 5


@pytest.mark.parametrize("destination", ["d", "x" * 60, "ä" * 40])
def test_names_fit_the_list_of_replicas(destination: str) -> None:
    """A registered host name is never longer than old servers accept."""
    assert len(replica(destination, -32768).name.encode()) <= NAME_BYTES_MAX


def test_derived_server_ids_are_valid() -> None:
    """Derived ids are larger than the ids that people choose, and fit 31 bits, which every tool can read."""
    for number in islice(replica("example", 1).server_ids(), 100):
        assert 2**30 <= number < 2**31


def test_free_server_id_avoids_others() -> None:
    """A derived id that another replica or the source has is skipped."""
    me = replica("example", 1001)
    first, second, third = islice(me.server_ids(), 3)
    assert free_server_id(me, (), 1) == first
    assert free_server_id(me, (Replica(first, "db-replica"),), second) == third


def test_own_leftover_is_no_obstacle() -> None:
    """The id of a listed dump of the same stream, recognized by uuid or (MariaDB) by name, is used again."""
    me = replica("example", 1001)
    first = next(me.server_ids())
    assert free_server_id(me, (Replica(first, "whatever", me.uuid),), 1) == first
    assert free_server_id(me, (Replica(first, me.name),), 1) == first
    assert free_server_id(me, (Replica(first, me.name, replica("other", 1).uuid),), 1) != first


def test_configured_server_id_is_taken_or_refused() -> None:
    """A configured id is used, or refused if another server has it; it is never replaced."""
    me = replica("example", 1001, server_id=1234)
    assert free_server_id(me, (), 1) == 1234
    assert free_server_id(me, (Replica(1234, "db-replica"),), 1) is None
    assert free_server_id(me, (), 1234) is None
