"""Addresses, lists of nodes, and batch ids that survive a fail-over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.client.discovery import Discovered, FixedList, ServerNode, split_address
from canal_ha.client.numbering import Numbering
from canal_ha.errors import LocalProtocolError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1:11111", ("10.0.0.1", 11111)),
        ("canal-1.example:80", ("canal-1.example", 80)),
        ("[fd00::1]:11111", ("fd00::1", 11111)),
        ("fd00::1:11111", ("fd00::1", 11111)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    """The form is host:port; brackets around an IPv6 address are optional."""
    assert split_address(text) == expected


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:x", "host:0", "host:65536", "host:\u0661"])
def test_what_is_no_address(text: str) -> None:
    """The error names the expected form."""
    with pytest.raises(ValueError, match="not host:port"):
        split_address(text)


def test_a_list_needs_a_node() -> None:
    """The error has canal's text."""
    with pytest.raises(ValueError, match="at least 1 node required"):
        FixedList([])


def test_what_zookeeper_says() -> None:
    """The running node comes first, then the first of the shuffled members. Unreadable data changes nothing."""
    directory = Discovered(lambda names: names.sort(reverse=True))
    assert directory.next() is None
    directory.members_are(["a:1", "b:1", "no address"])
    assert directory.next() == ServerNode("b:1")
    directory.running_is("a:1", 5)
    directory.running_is("", 6)
    assert directory.next() == ServerNode("a:1", 5)
    directory.running_is_gone()
    assert directory.next() == ServerNode("b:1")


def test_a_list_is_shuffled_when_it_changes_only() -> None:
    """If every update shuffled the list, the guess would change each time."""
    shuffles: list[list[str]] = []
    directory = Discovered(shuffles.append)
    for names in (["a:1", "b:1"], ["b:1", "a:1"], ["b:1"]):
        directory.members_are(names)
    assert shuffles == [["a:1", "b:1"], ["b:1"]]


def test_batch_ids_are_the_servers_while_they_grow() -> None:
    """After a fail-over to a server that counts from 1, they continue after the last one."""
    ids = Numbering()
    ids.new_connection()
    assert [ids.handed_out(1), ids.handed_out(2)] == [1, 2]
    ids.new_connection()
    assert ids.server_id(2) is None
    assert ids.handed_out(1) == 3
    assert ids.server_id(3) == 1
    ids.acknowledged(3)
    assert ids.server_id(3) is None
    with pytest.raises(LocalProtocolError):
        ids.server_id(4)


@given(st.lists(st.lists(st.integers(1, 5), max_size=6), max_size=6))
def test_batch_ids_never_come_twice(connections: list[list[int]]) -> None:
    """For any ids of the servers, ours grow, and only those of the current connection map to the server's."""
    ids = Numbering()
    seen: list[int] = []
    for steps in connections:
        ids.new_connection()
        server_id, current = 0, {}
        for step in steps:
            server_id += step
            ours = ids.handed_out(server_id)
            assert not seen or ours > max(seen)
            seen.append(ours)
            current[ours] = server_id
        assert all(ids.server_id(ours) == current.get(ours) for ours in seen)


def test_a_rollback_takes_what_comes_later_with_it() -> None:
    """A rollback covers one batch and all later ones, or all batches."""
    ids = Numbering()
    ids.new_connection()
    for server_id in (1, 2, 3):
        ids.handed_out(server_id)
    ids.rolled_back(2)
    assert [ids.server_id(number) for number in (1, 2, 3)] == [1, None, None]
    ids.rolled_back()
    assert ids.server_id(1) is None
