"""What nodes and clients rely on in ZooKeeper, tested with the real one and with the in-memory one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from canal_ha.errors import TransactionRefused, ZooKeeperUnavailable
from canal_ha.zookeeper.operations import Check, Create, Delete, Operation, SetData
from tests.zookeeper.stage import MemoryStage, QueueStage, RealStage, Stage


@pytest.fixture(
    params=["memory", pytest.param("node", marks=pytest.mark.real), pytest.param("client", marks=pytest.mark.real)]
)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A stage in memory, one on a reactor as nodes have it, and one on a thread and a queue as clients have it."""
    stage: MemoryStage | RealStage | QueueStage
    if request.param == "memory":
        stage = MemoryStage()
    else:
        made = RealStage if request.param == "node" else QueueStage
        stage = made(request.getfixturevalue("zookeeper").hosts)
    yield stage
    stage.close()


def test_a_node_lives_through_its_versions(stage: Stage) -> None:
    """A node can be created, read, written and deleted. Its version counts writes, and a new node begins again at 0."""
    session = stage.session()
    assert stage.do(lambda: session.get("/a")) is None
    assert stage.do(lambda: session.transaction([Create("/a", b"x")])) == (0,)
    assert stage.do(lambda: session.transaction([SetData("/a", b"y", 0), SetData("/a", b"z")])) == (1, 2)
    node = stage.do(lambda: session.get("/a"))
    assert node is not None
    assert (node.data, node.version, node.owner) == (b"z", 2, 0)
    assert stage.do(lambda: session.transaction([Check("/a", 2), Delete("/a", 2), Create("/a")])) == (2, 0, 0)
    node = stage.do(lambda: session.get("/a"))
    assert node is not None
    assert (node.data, node.version) == (b"", 0)


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (Create("/a"), "exists"),
        (Create("/no/b"), "missing"),
        (Check("/no", 0), "missing"),
        (Check("/a", 7), "version"),
        (SetData("/no", b""), "missing"),
        (SetData("/a", b"", 7), "version"),
        (Delete("/no"), "missing"),
        (Delete("/a", 7), "version"),
        (Delete("/a"), "not empty"),
    ],
)
def test_a_refusal_names_its_cause(stage: Stage, operation: Operation, reason: str) -> None:
    """The error names the operation that failed, at any index, and why. Nothing of the transaction takes effect."""
    session = stage.session()
    stage.do(lambda: session.transaction([Create("/a"), Create("/a/child"), Create("/t")]))
    operations: list[Operation] = [SetData("/t", b"1"), Create("/u"), SetData("/t", b"2")]
    for index in range(4):
        wrong = [*operations[:index], operation, *operations[index:]]
        with pytest.raises(TransactionRefused) as refused:
            stage.do(lambda wrong=wrong: session.transaction(wrong))  # type: ignore[misc]  # binds the loop's value
        assert (refused.value.index, refused.value.reason, refused.value.path) == (index, reason, operation.path)
    node = stage.do(lambda: session.get("/t"))
    assert node is not None
    assert (node.data, node.version) == (b"", 0)
    assert stage.do(lambda: session.get("/u")) is None


def test_ephemeral_nodes_name_their_session_and_go_with_it(stage: Stage) -> None:
    """The owner is the session's id. Closing the session deletes the node and fires the watch as deleted."""
    mine, other = stage.session(), stage.session()
    assert mine.id != other.id
    stage.do(lambda: mine.transaction([Create("/e", b"", ephemeral=True)]))
    events: list[bool] = []
    node = stage.do(lambda: other.get("/e", events.append))
    assert node is not None
    assert node.owner == mine.id
    stage.do(mine.stop)
    stage.until(lambda: events == [True])
    assert stage.do(lambda: other.get("/e")) is None
    with pytest.raises(ZooKeeperUnavailable):
        stage.do(lambda: mine.get("/e"))


def test_a_watch_fires_once(stage: Stage) -> None:
    """A watch fires once, for creation, change or deletion, even if it is left twice before."""
    session = stage.session()
    events: list[bool] = []
    heard = events.append
    assert stage.do(lambda: session.get("/w", heard)) is None
    stage.do(lambda: session.transaction([Create("/w")]))
    stage.until(lambda: events == [False])
    stage.do(lambda: session.get("/w", heard))
    stage.do(lambda: session.get("/w", heard))
    stage.do(lambda: session.transaction([SetData("/w", b"1")]))
    stage.do(lambda: session.transaction([SetData("/w", b"2")]))
    stage.pass_time()
    assert events == [False, False]
    stage.do(lambda: session.get("/w", heard))
    stage.do(lambda: session.transaction([Delete("/w")]))
    stage.until(lambda: events == [False, False, True])


def test_a_watch_on_whether_a_node_exists_tells_when_it_comes_and_goes(stage: Stage) -> None:
    """And nothing else is needed to hear of the next change, also of a node that was missing."""
    session = stage.session()
    events: list[bool] = []
    heard = events.append
    assert not stage.do(lambda: session.exists("/p", heard))
    stage.do(lambda: session.transaction([Create("/p")]))
    stage.until(lambda: events == [False])
    assert stage.do(lambda: session.exists("/p", heard))
    stage.do(lambda: session.transaction([Delete("/p")]))
    stage.until(lambda: events == [False, True])
    assert stage.do(lambda: session.get("/p", heard)) is None
    stage.do(lambda: session.transaction([Create("/p", b"x")]))
    stage.until(lambda: events == [False, True, False])
    node = stage.do(lambda: session.get("/p", heard))
    assert node is not None
    assert node.data == b"x"


def test_an_orderly_release_is_seen_as_a_change(stage: Stage) -> None:
    """SetData and Delete in one transaction fire another session's watch once, as a change. Then the node is gone."""
    owner, standby = stage.session(), stage.session()
    stage.do(lambda: owner.transaction([Create("/r", b"", ephemeral=True)]))
    events: list[bool] = []
    stage.do(lambda: standby.get("/r", events.append))
    stage.do(lambda: owner.transaction([SetData("/r", b"bye"), Delete("/r")]))
    stage.until(lambda: len(events) == 1)
    stage.pass_time()
    assert events == [False]
    assert stage.do(lambda: standby.get("/r")) is None


def test_children_and_their_watch(stage: Stage) -> None:
    """Names are sorted; a missing node has none. The watch fires when a child is created, and when one is deleted."""
    session = stage.session()
    assert stage.do(lambda: session.children("/p")) == ()
    stage.do(lambda: session.ensure("/p/q/r"))
    stage.do(lambda: session.ensure("/p/q/r"))
    events: list[bool] = []
    heard = events.append
    assert stage.do(lambda: session.children("/p", heard)) == ("q",)
    stage.do(lambda: session.transaction([Create("/p/b"), SetData("/p/q", b"")]))
    stage.until(lambda: len(events) == 1)
    assert stage.do(lambda: session.children("/p", heard)) == ("b", "q")
    stage.do(lambda: session.transaction([Delete("/p/b")]))
    stage.until(lambda: len(events) == 2)


def test_a_watch_for_children_waits_for_a_node_that_does_not_exist(stage: Stage) -> None:
    """The watch fires when the node is created, so that a list can be read before it exists."""
    session = stage.session()
    events: list[bool] = []
    assert stage.do(lambda: session.children("/later", events.append)) == ()
    stage.do(lambda: session.transaction([Create("/later")]))
    stage.until(lambda: events == [False])


def test_one_of_two_claims_wins(stage: Stage) -> None:
    """When two sessions create the same node and move the same version, one is refused and moves nothing."""
    first, second = stage.session(), stage.session()
    stage.do(lambda: first.ensure("/d"))

    async def race() -> list[object]:
        results: list[object] = []
        for session in (first, second):
            try:
                results.append(await session.transaction([Create("/d/r", b"", ephemeral=True), SetData("/d", b"", 0)]))
            except TransactionRefused as refused:
                results.append(refused.reason)
        return results

    assert stage.do(race) == [(0, 1), "exists"]
    node = stage.do(lambda: first.get("/d"))
    assert node is not None
    assert node.version == 1
