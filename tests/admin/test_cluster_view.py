"""When a page or an action gets an older picture of the cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from canal_ha.admin.cluster_view import ClusterView


def test_an_action_waits_for_a_look_that_began_after_it() -> None:
    """A look that is under way may have read ZooKeeper before a node got the destination."""
    view = ClusterView(Clock(), "127.0.0.1:1", lambda account: {}, lambda account: {}, None)  # type: ignore[arg-type]  # not asked
    looks: list[Deferred[dict[str, Any]]] = []

    async def look(*_: object) -> dict[str, Any]:
        looks.append(Deferred())
        return await looks[-1]

    view._look = look  # type: ignore[method-assign, assignment]  # it takes anything
    guest: Any = SimpleNamespace(account=SimpleNamespace(name="admin"), authorization="x")
    page = Deferred.fromCoroutine(view.look(guest))
    actions = [Deferred.fromCoroutine(view.look(guest, fresh=True)) for _ in range(2)]
    looks[0].callback({"destinations": ["old"]})
    assert page.result == {"destinations": ["old"]}
    assert [each.called for each in actions] == [False, False]
    looks[1].callback({"destinations": ["new"]})
    assert [each.result for each in actions] == [{"destinations": ["new"]}] * 2
    assert len(looks) == 2
