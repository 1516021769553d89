"""The blocking session of commands and of the page, while a real ZooKeeper does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

from canal_ha.errors import ZooKeeperUnavailable
from canal_ha.zookeeper import reading
from canal_ha.zookeeper.operations import Create
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import ZooKeeper
from tests.zookeeper.stage import wait_until

pytestmark = pytest.mark.real

LIMIT_S = 0.5


@pytest.fixture
def server() -> Iterator[ZooKeeper]:
    """A server that the test stops."""
    with ZooKeeper() as server:
        yield server


def in_time(work: Callable[[], Any], seconds: float) -> Any:
    """Return what `work` returns, or the ZooKeeperUnavailable that it raises. Fail if it takes longer."""
    found: list[Any] = []

    def do() -> None:
        try:
            found.append(work())
        except ZooKeeperUnavailable as error:
            found.append(error)

    thread = Thread(target=do, daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, f"no answer after {seconds} s"
    return found[0]


@pytest.mark.parametrize("frozen", [False, True], ids=["stopped", "frozen"])
def test_a_request_hangs_while_zookeeper_is_away(
    server: ZooKeeper, frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request and the end of the session take a limited time. Once the server is back, the session answers."""
    monkeypatch.setattr(reading, "ANSWER_MOST_S", LIMIT_S)
    znodes = BlockingZnodes(server.hosts, read_only=False).__enter__()
    assert znodes.get("/none") is None
    if frozen:
        server.pause()
    else:
        server.stop()
        wait_until(lambda: not znodes.connected, 15.0)
    for ask in (
        lambda: znodes.get("/none"),
        lambda: znodes.children("/"),
        lambda: znodes.open_to_all(["/", "/zookeeper"]),
        lambda: znodes.transaction([Create("/made")]),
        lambda: znodes.ensure("/ensured"),
    ):
        error = in_time(ask, LIMIT_S + 2.0)
        assert isinstance(error, ZooKeeperUnavailable)
        assert server.hosts in str(error)
    if frozen:
        server.resume()
    else:
        server.start()
    deadline = time.monotonic() + 15.0
    while (again := in_time(lambda: znodes.get("/none"), LIMIT_S + 2.0)) is not None:
        assert isinstance(again, ZooKeeperUnavailable)
        assert time.monotonic() < deadline
        time.sleep(0.1)
    server.pause()
    began = time.monotonic()
    znodes.__exit__(None, None, None)
    assert time.monotonic() - began < 4.0
    server.resume()


def test_a_session_ends_late_because_no_server_can_be_reached(
    server: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that takes connections and answers none costs the time-out of a connection, and no second one."""
    monkeypatch.setattr(reading, "CONNECT_MOST_S", LIMIT_S)
    server.pause()
    error = in_time(lambda: BlockingZnodes(server.hosts).__enter__(), LIMIT_S + 4.0)
    assert "no ZooKeeper answers" in str(error)
    server.resume()
