"""What a node has seen: changes of owners, nodes that are gone, and the lag of an hour."""

from __future__ import annotations

from canal_ha.admin.seen import CHANGES_MOST, SAMPLES, STREAMS_MOST, OwnerChange, Sightings
from canal_ha.instance.status import InstanceStatus, StreamStatus


def test_a_change_of_the_owner_is_kept_and_the_first_owner_is_none() -> None:
    """The first owner that a node hears of is no fail-over. A destination without an owner in between is one change."""
    seen = Sightings()
    seen.owners({"shop": "a:1"}, 10.0)
    seen.owners({"shop": ""}, 13.0)
    seen.owners({"shop": "b:1"}, 16.0)
    seen.owners({"shop": "b:1"}, 19.0)
    assert list(seen.changes) == [OwnerChange("shop", "a:1", "b:1", 16.0)]
    for at in range(CHANGES_MOST + 5):
        seen.owners({"shop": f"{at % 2}:1"}, at)
    assert len(seen.changes) == CHANGES_MOST


def test_a_node_that_is_gone_is_kept_until_it_comes_back() -> None:
    """It has the time when it went."""
    seen = Sightings()
    seen.nodes(["a:1", "b:1"], 1.0)
    seen.nodes(["a:1"], 2.0)
    seen.nodes(["a:1"], 3.0)
    assert dict(seen.gone) == {"b:1": 2.0}
    seen.nodes(["a:1", "b:1"], 4.0)
    assert not seen.gone


def test_the_lag_of_the_last_hour_is_kept_of_few_streams() -> None:
    """Older samples go first, and so do the streams that have not been sampled for longest."""
    seen = Sightings()
    for at in range(SAMPLES + 10):
        stream = StreamStatus(1001, "", "open", seconds_behind=at / 2, bytes_behind=at)
        seen.sample([InstanceStatus("shop", "db:1", streams=(stream,))], float(at))
    ((client_id, samples),) = seen.lags("shop", 0.0).items()
    assert (client_id, len(samples), samples[0].at, samples[-1].size) == (1001, SAMPLES, 10.0, SAMPLES + 9)
    assert len(seen.lags("shop", 200.0)[1001]) == SAMPLES + 10 - 200
    many = tuple(StreamStatus(number, "", "open") for number in range(STREAMS_MOST))
    seen.sample([InstanceStatus("other", "db:1", streams=many)], 999.0)
    assert not seen.lags("shop", 0.0)
    assert len(seen.lags("other", 0.0)) == STREAMS_MOST
