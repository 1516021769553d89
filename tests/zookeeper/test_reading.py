"""The blocking session of commands and of the page, while a real ZooKeeper does not answer."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from threading import Thread
from typing import Any

import pytest
from kazoo.security import make_digest_acl

from canal_ha.errors import ZnodeDenied, ZooKeeperUnavailable
from canal_ha.zookeeper import reading
from canal_ha.zookeeper.operations import Create, Delete, Operation, SetData
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import Network, ZooKeeper
from lab.ports import LOOPBACK, free_port
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


def test_a_command_that_reaches_no_zookeeper_prints_one_error_and_no_lines_of_kazoo(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """kazoo tells of each attempt. A command without a log would print that before its own error."""
    monkeypatch.setattr(reading, "CONNECT_MOST_S", LIMIT_S)
    before = {thread.ident for thread in threading.enumerate()}  # clients of other tests may end meanwhile
    with pytest.raises(ZooKeeperUnavailable, match="no ZooKeeper answers"), BlockingZnodes(f"{LOOPBACK}:{free_port()}"):
        pass
    here = threading.get_ident()
    assert [each.getMessage() for each in caplog.records if each.thread == here or each.thread not in before] == []


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


def received(server: ZooKeeper) -> int:
    """Return how many packets the server got."""
    return int(re.findall(r"Received: (\d+)", server.four_letters("srvr"))[0])


def test_a_session_that_keeps_answers_reads_what_changed_alone_and_is_never_late(server: ZooKeeper) -> None:
    """It sees every change that was made before, by another session, also after its connection was lost."""
    random = Random(3)
    paths = [f"/a{number}" for number in range(40)]
    with Network() as network:
        link = network.link(server.port)
        hosts, through = (f"{address}/chroot" for address in (server.hosts, link.address))
        with BlockingZnodes(hosts, read_only=False) as other, BlockingZnodes(through, keeps=True) as keeps:
            other.ensure(paths[0])
            for round_ in range(300):
                path = random.choice(paths)
                child = f"{path}/c{random.randrange(3)}"
                data = str(round_).encode()
                if other.get(path) is None:
                    change: Operation = Create(path, data)
                elif random.random() < 0.5:
                    change = Delete(child) if other.get(child) else Create(child)
                elif random.random() < 0.5 and not other.children(path):
                    change = Delete(path)
                else:
                    change = SetData(path, data)
                other.transaction([change])
                keeps.catch_up()
                assert keeps.get_all(paths) == other.get_all(paths)
                assert keeps.children_of_all(paths) == other.children_of_all(paths)
                if round_ % 100 == 50:
                    link.refuse()
                    wait_until(lambda: not keeps.connected, 10.0)
                    other.transaction([SetData(path, b"meanwhile")] if other.get(path) else [Create(path)])
                    link.heal()
                    wait_until(lambda: keeps.connected, 10.0)
            missing = sum(other.get(path) is None for path in paths)
            before = received(server)
            keeps.catch_up()
            keeps.get_all(paths)
            keeps.children_of_all(paths)
            assert received(server) - before <= 1 + 2 * missing + 3  # three for pings and for `srvr` itself


def test_a_node_that_the_account_may_read_no_more_is_not_shown_for_ever(
    server: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper may tell of no change then."""
    with BlockingZnodes(server.hosts, read_only=False) as other, BlockingZnodes(server.hosts, keeps=True) as keeps:
        other.transaction([Create("/a", b"old")])
        assert keeps.get_all(["/a"]) == other.get_all(["/a"])
        other._client.set_acls("/a", [make_digest_acl("u", "p", read=True, admin=True)])
        monkeypatch.setattr(reading, "KEPT_MOST_S", 0.0)
        keeps.catch_up()
        (found,) = keeps.get_all(["/a"])
        assert isinstance(found, ZnodeDenied)
