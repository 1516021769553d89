"""An ensemble in memory: the tree, sessions that expire, watches that fire once, and a leader that can be slow.

The leader puts writes and the ends of sessions into one queue. While its disk is slow, `commit_s` delays them, and no
later write overtakes an earlier one. A write in the queue is done even if its connection ends meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from typing import Protocol

from canal_ha.errors import CanalError, TransactionRefused
from canal_ha.zookeeper.operations import Check, Create, Delete, Operation, SetData, Znode
from lab.simulation.time import Timer, World
from lab.simulation.tree import Tree

Commit = Callable[[int, Sequence[Operation], tuple[int, ...]], None]


class Watcher(Protocol):
    """A watch left at the ensemble."""

    def fire(self, deleted: bool) -> None:
        """Report that the node changed."""
        ...


@dataclass
class Granted:
    """A session as the ensemble sees it."""

    timeout_s: float
    heard_at: float
    timer: Timer
    closing: bool = False  # its end is in the leader's queue


class Ensemble:
    """The tree, the sessions and the watches.

    commits: called with session id, operations and versions of each transaction that is done.
    lax: do not compare versions in Check, as if there were no epochs.
    """

    def __init__(self, world: World, *, lax: bool = False) -> None:
        self.tree = Tree({"": Znode(b"", 0)})
        self.sessions: dict[int, Granted] = {}
        self.commits: list[Commit] = []
        self.commit_s = 0.0  # how long the leader takes to commit a write
        self.committed_at = 0.0  # when everything in the leader's queue is committed
        self._past: list[Tree] = [self.tree]  # one for each change, and
        self._past_at: list[float] = [0.0]  # when it was made
        self._first = 0  # no follower is further behind than this change
        self._world = world
        self._lax = lax
        self._ids = count(1)
        self._zxids = count(1)
        self._data_watches: dict[str, dict[Watcher, None]] = defaultdict(dict)  # in the order they were left
        self._child_watches: dict[str, dict[Watcher, None]] = defaultdict(dict)

    # ---- sessions

    def grant(self, timeout_s: float) -> int:
        """Create a session, and return its id."""
        session_id = next(self._ids)
        timer = self._world.callLater(timeout_s, self._check_expiry, session_id)
        self.sessions[session_id] = Granted(timeout_s, self._world.seconds(), timer)
        return session_id

    def hear(self, session_id: int) -> bool:
        """Note that a message of the session arrived. Return False if the session has expired."""
        granted = self.sessions.get(session_id)
        if granted is None or granted.closing:
            return False
        granted.heard_at = self._world.seconds()
        return True

    def expire(self, session_id: int) -> None:
        """End a session: delete its ephemeral nodes, and fire their watches."""
        granted = self.sessions.pop(session_id, None)
        if granted is None:
            return
        granted.timer.cancel()
        owned = [(node.created, path) for path, node in self.tree.items() if node.owner == session_id]
        gone = [path for _, path in sorted(owned)]  # in the order of their creation, so that a seed repeats
        left = self.tree.copy()
        for path in gone:
            del left[path]
        self._change(left)
        for path in gone:
            self._fire(path, deleted=True, children=True)

    def _check_expiry(self, session_id: int) -> None:
        granted = self.sessions.get(session_id)
        if granted is None:
            return
        left_s = granted.heard_at + granted.timeout_s - self._world.seconds()
        if left_s <= 0:
            granted.closing = True
            self._queue(lambda: self.expire(session_id))
        else:
            granted.timer = self._world.callLater(left_s, self._check_expiry, session_id)

    def wipe(self) -> None:
        """Lose all data and all sessions, as an ensemble whose disks are emptied. No watch fires."""
        for granted in self.sessions.values():
            granted.timer.cancel()
        self.sessions.clear()
        self._zxids = count(1)
        self._change(Tree({"": Znode(b"", 0)}))
        self._first = self.zxid
        self._data_watches.clear()
        self._child_watches.clear()

    def restore(self, tree: Mapping[str, Znode]) -> None:
        """Lose all sessions and go back to a tree of the past, as an ensemble that is restored from a backup."""
        self.wipe()
        self._change(Tree({path: node for path, node in tree.items() if not node.owner}))
        self._first = self.zxid

    def _change(self, tree: Tree) -> None:
        self.tree = tree
        self._past.append(tree)
        self._past_at.append(self._world.seconds())

    @property
    def zxid(self) -> int:
        """The number of the last change."""
        return len(self._past) - 1

    def zxid_at(self, at: float) -> int:
        """Return the number of the last change at a time in the past."""
        return max(self._first, bisect_right(self._past_at, at) - 1)

    def past(self, zxid: int) -> Tree:
        """Return the tree after a change."""
        return self._past[zxid]

    # ---- requests

    def submit(
        self, session_id: int, operations: Sequence[Operation], done: Callable[[tuple[int, ...] | CanalError], None]
    ) -> None:
        """Put a transaction into the leader's queue. done: called with its result when it is committed or refused."""

        def commit() -> None:
            if session_id and session_id not in self.sessions:
                return  # the session has ended before, so the leader refuses, and its connection is closed
            try:
                result: tuple[int, ...] | CanalError = self.transaction(session_id, operations)
            except TransactionRefused as refused:
                result = refused
            done(result)

        self._queue(commit)

    def _queue(self, commit: Callable[[], None]) -> None:
        now = self._world.seconds()
        self.committed_at = max(self.committed_at, now + self.commit_s)
        if self.committed_at <= now:
            commit()
        else:
            self._world.callLater(self.committed_at - now, commit)

    def children(self, path: str) -> tuple[str, ...]:
        """Return the names of the children, sorted."""
        return self.tree.children(path)

    def transaction(self, session_id: int, operations: Sequence[Operation]) -> tuple[int, ...]:
        """Apply all operations or none, and return the versions. Raises TransactionRefused."""
        tree = self.tree.copy()
        versions = tuple(self._apply(tree, session_id, index, operation) for index, operation in enumerate(operations))
        self._change(tree)
        for commit in self.commits:
            commit(session_id, operations, versions)
        for operation, _ in groupby(operations):  # a claim may repeat one many times
            if not isinstance(operation, Check):
                changed = isinstance(operation, SetData)
                self._fire(operation.path, deleted=isinstance(operation, Delete), children=not changed)
        return versions

    def _apply(self, tree: Tree, session_id: int, index: int, operation: Operation) -> int:
        node = tree.get(operation.path)
        if isinstance(operation, Create):
            parent = tree.get(operation.path.rpartition("/")[0])
            if node is not None:
                raise TransactionRefused(index, "exists", operation.path)
            if parent is None:
                raise TransactionRefused(index, "missing", operation.path)
            if parent.owner:
                raise TransactionRefused(index, "NoChildrenForEphemeralsError", operation.path)
            owner = session_id if operation.ephemeral else 0
            tree[operation.path] = Znode(operation.data, 0, owner, next(self._zxids))
            return 0
        if node is None:
            raise TransactionRefused(index, "missing", operation.path)
        lax = self._lax and isinstance(operation, Check)
        if operation.version not in (-1, node.version) and not lax:
            raise TransactionRefused(index, "version", operation.path)
        match operation:
            case SetData():
                tree[operation.path] = Znode(operation.data, node.version + 1, node.owner, node.created)
                return node.version + 1
            case Delete():
                if tree.children(operation.path):
                    raise TransactionRefused(index, "not empty", operation.path)
                del tree[operation.path]
                return 0
        return operation.version

    # ---- watches

    def watch_data(self, path: str, watcher: Watcher) -> None:
        """Fire the watch once, when the node is created, changed or deleted."""
        self._data_watches[path][watcher] = None

    def watch_children(self, path: str, watcher: Watcher) -> None:
        """Fire the watch once, when a child is created or deleted, or when the node itself is deleted."""
        self._child_watches[path][watcher] = None

    def _fire(self, path: str, *, deleted: bool, children: bool) -> None:
        watchers = self._data_watches.pop(path, {})
        if deleted:
            watchers = watchers | self._child_watches.pop(path, {})
        for watcher in watchers:
            watcher.fire(deleted)
        if children:
            for watcher in self._child_watches.pop(path.rpartition("/")[0], {}):
                watcher.fire(False)
