"""What a stranger wrote into znodes: every reader refuses it with an error of its own, in a bounded time."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import hypothesis.strategies as st
import pytest
from hypothesis import given

from canal_ha.client.discovery import Discovered
from canal_ha.decode.history.ranges import Range
from canal_ha.errors import HistoryUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.source.history.znode_store import ZnodeStore
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Check, Create, Operation, Znode
from canal_ha.zookeeper.race_events import RunningNode
from lab.simulation.time import World
from lab.simulation.zookeeper import Ensemble

BOUND_S = 2.0
SOURCE = "a3f1"
CURSOR = (
    LogPosition(
        "mysql-bin.000001", 2034, 1699999999000, 1, "", "localhost", mark="spool", trail="ab", origins="cd", part=1
    )
    .beside([LogPosition("bin.000007", 99, 5, 2, "x:1-5", "other", 3307, consumed=True, part=2)])
    .to_json(with_type=True)
    .encode()
)
RUNNING = tree.RunningData("10.0.0.1:11111", client_id=1001).to_bytes()

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


def documents(good: bytes) -> st.SearchStrategy[bytes]:
    """Return random bytes, random JSON, and the good document with values replaced or bytes changed."""
    return (
        st.binary(max_size=200)
        | VALUES.map(lambda value: json.dumps(value).encode())
        | VALUES.flatmap(lambda value: st.sampled_from(list(replaced(json.loads(good), value))))
        | st.tuples(st.binary(max_size=4), st.integers(0, len(good)), st.integers(0, 4)).map(
            lambda cut: good[: cut[1]] + cut[0] + good[cut[1] + cut[2] :]
        )
    )


def replaced(body: object, value: object) -> Iterator[bytes]:
    """Yield the document with each of its values replaced by `value`, one at a time."""
    places: list[tuple[object, object]] = []

    def walk(inner: object) -> None:
        keys = list(inner) if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ()
        for key in keys:
            places.append((inner, key))
            walk(inner[key])  # type: ignore[index]  # a dict or a list

    walk(body)
    for holder, key in places:
        before, holder[key] = holder[key], value  # type: ignore[index]  # a dict or a list
        yield json.dumps(body).encode()
        holder[key] = before  # type: ignore[index]  # a dict or a list


@contextmanager
def bounded() -> Iterator[None]:
    """Fail if the block takes longer than any document of a megabyte may."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < BOUND_S


BOMBS = [
    b"[" * 500_000,
    b'{"postion":' * 60_000,
    b'{"postion":{"journalName":' + b"[" * 900 + b"]" * 900 + b"}}",
    b'\\"' * 500_000,
    b'"' + b"\\" * 999_999,
    b"1" * 1_000_000,
    b"-" * 1_000_000,
    b'{"postion":{"position":' + b"9" * 4_000 + b"}}",
    b'{"postion":{"journalName":"b.' + b"9" * 5_000 + b'"}}',
    b'{"postion":{"journalName":"\\ud800"}}',
    b'{"address":"\\ud800"}',
    b'{"address":' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"address":"a\\u001b[2J:1"}',
]


def read_position(data: bytes) -> None:
    """Read a cursor as all readers do. What is accepted can be compared, shown and written again."""
    try:
        position = LogPosition.from_json(data.decode())
    except ValueError:
        return
    assert position.covers(position)
    assert str(position)
    assert LogPosition.from_json(position.to_json(with_type=True).encode().decode()) == position


def read_running(data: bytes) -> None:
    """Read a `running` node as nodes and clients do."""
    running = RunningNode.read(Znode(data, 0))
    assert running is not None
    found = Discovered(lambda names: None)
    found.running_is(running.address, 1)
    found.members_are([running.address, data.decode(errors="replace")])
    tree.RunningData(running.address).to_bytes()


@pytest.mark.parametrize("data", BOMBS, ids=lambda data: repr(data[:24]))
def test_a_document_that_is_made_to_hurt(data: bytes) -> None:
    """Deep nesting, long digits, quotes and lone surrogates are refused in the time that reading them takes."""
    with bounded():
        read_position(data)
    with bounded():
        read_running(data)


@given(documents(CURSOR))
def test_any_cursor(data: bytes) -> None:
    """Only ValueError comes out, which every caller turns into MetaUnreadable."""
    read_position(data)


@given(documents(RUNNING))
def test_any_running_node(data: bytes) -> None:
    """Nothing comes out: whatever the data is, the node has an owner."""
    read_running(data)


@given(st.text(max_size=8) | st.text("-+0123456789²٣_ ", max_size=8))
def test_any_child_of_a_destination(name: str) -> None:
    """A client id is the name that its path is made of, and nothing else is."""
    client_id = tree.client_id_of(name)
    assert client_id is None or tree.client("d", client_id) == f"{tree.destination('d')}/{name}"
    assert (client_id is not None) == (name in {str(number) for number in range(-(1 << 15), 1 << 15)})


class Nodes:
    """Implements WaitingZnodes with the simulated ZooKeeper."""

    def __init__(self) -> None:
        self.ensemble = Ensemble(World())
        self.transaction([Create(path) for path in ("/d", "/d/history")])

    def get(self, path: str) -> Znode | None:
        """See WaitingZnodes."""
        return self.ensemble.tree.get(path)

    def children(self, path: str) -> tuple[str, ...]:
        """See WaitingZnodes."""
        return self.ensemble.children(path)

    def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """See WaitingZnodes."""
        return self.ensemble.transaction(0, operations)


def history_of(index: bytes, piece: bytes) -> ZnodeStore:
    """Return a store whose index and only piece hold these bytes."""
    nodes = Nodes()
    nodes.transaction([Create("/d/history/p", piece)])
    stored = nodes.ensemble.tree["/d/history"]
    nodes.ensemble.tree["/d/history"] = Znode(index, stored.version)
    return ZnodeStore("/d/history", Check("/d", 0), nodes)


INDEX = json.dumps(
    {
        "sources": {
            SOURCE: {
                "ranges": [[["b.1", 4, False, 0], ["b.1", 9, True, 0]]],
                "expired": None,
                "times": {"b.1": 5},
                "snapshots": [{"at": ["b.1", 4, False, 0, 5], "complete": True, "parts": [["p"]]}],
                "statements": [["p"]],
            }
        }
    }
).encode()


@given(
    documents(INDEX),
    documents(b'[["b.1", 4, false, 0, 5, "s", "t", "CREATE TABLE t (a int)", "CREATE"]]'),
    st.booleans(),
)
def test_any_table_history(index: bytes, piece: bytes, compressed: bool) -> None:
    """Only HistoryUnavailable comes out."""
    store = history_of(index, zlib.compress(piece) if compressed else piece)
    with bounded():
        try:
            kept = store.load(SOURCE)
        except HistoryUnavailable:
            return
        assert all(isinstance(each, Range) for each in kept.ranges)


@pytest.mark.parametrize("data", BOMBS, ids=lambda data: repr(data[:24]))
def test_a_table_history_that_is_made_to_hurt(data: bytes) -> None:
    """Only HistoryUnavailable comes out."""
    for index, piece in ((data, b""), (INDEX, data), (INDEX, zlib.compress(data))):
        with bounded(), suppress(HistoryUnavailable):
            history_of(index, piece).load(SOURCE)
