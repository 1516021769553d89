"""A blocking session for commands and the page: it reads the tree, and writes it for operators who edit it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import Callback
from kazoo.security import Permissions

from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import TransactionRefused, ZnodeDenied, ZooKeeperUnavailable
from canal_ha.zookeeper.connect_string import connect_string
from canal_ha.zookeeper.kept import KeptAnswers
from canal_ha.zookeeper.operations import Operation, Znode
from canal_ha.zookeeper.port import acl_of, client_options, ended, transaction_of, unavailable, versions_after

OPEN = ZooKeeperAccess()
CONNECT_MOST_S = 10.0
ANSWER_MOST_S = 5.0  # to a change, or to the READ_AT_ONCE requests that are asked together
KEPT_MOST_S = 60.0  # then all is read anew: ZooKeeper may not tell of a node that the account may not read any more
CLOSE_MOST_S = 1.0  # then the session is left to end on its own
READ_AT_ONCE = 512

_LOG = logging.getLogger("kazoo.reading")
_LOG.setLevel(logging.CRITICAL)  # kazoo tells of each attempt, and errors that matter are raised


class BlockingZnodes:
    """Znodes for a caller that may wait; `with` opens and closes the session. Every method raises ZooKeeperUnavailable.

    While the connection is lost, kazoo keeps requests until it is back. So every request has a time limit. A change
    that was not answered in time may have been made, or may be made later.

    servers: as in canal.zkServers.
    access: how to reach ZooKeeper, and as whom.
    read_only: accept also a server without a quorum, which cannot write.
    keeps: set watches, so that a node that was read and has not changed is not read again. Then `catch_up` comes before
        the reads that belong together. For one thread at a time.
    """

    def __init__(
        self, servers: str, access: ZooKeeperAccess = OPEN, *, read_only: bool = True, keeps: bool = False
    ) -> None:
        self._servers = servers
        self._keeps = keeps
        self._data, self._children = KeptAnswers(), KeptAnswers()
        self._kept_since = monotonic()
        self._access = access
        hosts, random_order = connect_string(servers)
        self._client = KazooClient(
            hosts,
            randomize_hosts=random_order,
            read_only=read_only,
            **client_options(access),
            logger=_LOG,
        )

    def __enter__(self) -> Self:
        try:
            if not self._client.start_async().wait(CONNECT_MOST_S):
                raise KazooTimeoutError("Connection time-out")
            if self._access.sasl:
                # kazoo is connected before the login is over
                self._client.exists_async("/").get(timeout=CONNECT_MOST_S)
        except (KazooTimeoutError, KazooException) as error:
            reason = ended(self._client) or str(error) or "the login was not answered"
            self._close()
            raise ZooKeeperUnavailable(f"no ZooKeeper answers at {self._servers}: {reason}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def connected(self) -> bool:
        """Whether the session has a connection now."""
        return bool(self._client.connected)

    def _close(self) -> None:
        """End the session. kazoo waits for the answer of a server, so a thread does it that may outlive the call."""
        closing = Thread(target=self._end, name="canal-zookeeper-close", daemon=True)
        closing.start()
        closing.join(CLOSE_MOST_S)

    def _end(self) -> None:
        with suppress(KazooException, OSError):  # the session then expires on its own
            self._client.stop()
            self._client.close()

    def get(self, path: str) -> Znode | None:
        """Return the node, or None when it does not exist."""
        (found,) = self.get_all([path])
        if isinstance(found, ZnodeDenied):
            raise found
        return found

    def get_all(self, paths: Sequence[str]) -> tuple[Znode | ZnodeDenied | None, ...]:
        """Return the node at each path, as `get` does, or the error if only its rights forbid to read it.

        Many are asked for before the first answer.
        """
        found: list[Znode | ZnodeDenied | None] = []
        for answer in self._read_all(self._client.get_async, self._data, paths):
            if answer is None or isinstance(answer, ZnodeDenied):
                found.append(answer)
            else:
                data, stat = answer
                found.append(Znode(data or b"", stat.version, stat.ephemeralOwner, stat.czxid))
        return tuple(found)

    def children(self, path: str) -> tuple[str, ...]:
        """Return the sorted names of the children; none when the node does not exist."""
        (found,) = self.children_of_all([path])
        if isinstance(found, ZnodeDenied):
            raise found
        return found

    def children_of_all(self, paths: Sequence[str]) -> tuple[tuple[str, ...] | ZnodeDenied, ...]:
        """Return the children of the node at each path, as `children` does, or the error if only its rights forbid it.

        Many are asked for before the first answer.
        """
        answers = self._read_all(self._client.get_children_async, self._children, paths)
        return tuple(each if isinstance(each, ZnodeDenied) else tuple(sorted(each or ())) for each in answers)

    def catch_up(self) -> None:
        """Make later reads tell of every change that their server has made until now."""
        if monotonic() - self._kept_since > KEPT_MOST_S:
            self._forget()
        try:
            _answer(self._client.exists_async("/"), monotonic() + ANSWER_MOST_S)
        except (KazooTimeoutError, KazooException) as error:
            raise unavailable(self._servers, error) from error
        # kazoo has got what the server told before this answer; its thread for callbacks may still be passing it on
        passed_on = Event()
        self._client.handler.dispatch_callback(Callback("watch", passed_on.set, ()))
        if not passed_on.wait(ANSWER_MOST_S):
            raise ZooKeeperUnavailable(f"{self._servers}: the session has ended")

    def _read_all(self, ask: Callable[..., Any], kept: KeptAnswers, paths: Sequence[str]) -> Sequence[Any]:
        """Return the answer for each path, as _ask_all does. ask: a request that can set a watch."""
        if not self._keeps:
            return list(self._ask_all(ask, paths))
        found = {path: kept.find(path) for path in paths}
        new = [path for path, known in found.items() if not known]

        def watching(path: str) -> Any:
            kept.asking(path)
            return ask(path, self._changed)

        for path, answer in zip(new, self._ask_all(watching, new), strict=True):
            found[path] = [answer]
            if answer is None or isinstance(answer, ZnodeDenied):
                kept.changed(path)  # ZooKeeper has set no watch
            else:
                kept.answered(path, answer)
        return [found[path][0] for path in paths]

    def _changed(self, event: Any) -> None:
        """Forget what a watch was set for; everything if kazoo has lost the watches. A thread of kazoo calls this."""
        if event.path is None:
            self._forget()
        else:
            self._data.changed(event.path)
            self._children.changed(event.path)

    def _forget(self) -> None:
        self._kept_since = monotonic()
        self._data.clear()
        self._children.clear()

    def _ask_all(self, ask: Callable[[str], Any], paths: Sequence[str]) -> Iterator[Any]:
        """Yield the answer for each path: None if the node does not exist, the error if only its rights forbid it."""
        for first in range(0, len(paths), READ_AT_ONCE):
            answers = [ask(path) for path in paths[first : first + READ_AT_ONCE]]
            until = monotonic() + ANSWER_MOST_S
            for answer in answers:
                try:
                    yield _answer(answer, until)
                except NoNodeError:
                    yield None
                except (KazooTimeoutError, KazooException) as error:
                    failed = unavailable(self._servers, error)
                    if not isinstance(failed, ZnodeDenied):
                        raise failed from error
                    yield failed

    def open_to_all(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Return those of the nodes that exist and that everybody may change or delete."""
        found = []
        for path, answer in zip(paths, self._ask_all(self._client.get_acls_async, paths), strict=True):
            if isinstance(answer, ZnodeDenied):
                raise answer
            acls, _ = answer or ((), None)
            if any(acl.id.scheme == "world" and acl.perms & ~Permissions.READ for acl in acls):
                found.append(path)
        return tuple(found)

    def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """Do all operations or none, as Znodes.transaction. Raises TransactionRefused."""
        try:
            asked = transaction_of(self._client, operations, self._access).commit_async()
            results = _answer(asked, monotonic() + ANSWER_MOST_S)
        except (KazooTimeoutError, KazooException) as error:
            raise unavailable(self._servers, error) from error
        versions = versions_after(operations, results)
        if isinstance(versions, TransactionRefused):
            raise versions
        return versions

    def ensure(self, path: str) -> None:
        """Create the persistent node if it is missing, and its missing parents, including the chroot."""
        until = monotonic() + ANSWER_MOST_S
        try:
            acl = acl_of(path, self._access)
            if acl is not None:
                _answer(self._client.ensure_path_async(path.rpartition("/")[0]), until)
            _answer(self._client.ensure_path_async(path, acl), until)
        except (KazooTimeoutError, KazooException) as error:
            raise unavailable(self._servers, error) from error


def _answer(asked: Any, until: float) -> Any:
    """Wait for the answer to a request of kazoo. Raises KazooTimeoutError if there is none at `until`."""
    return asked.get(timeout=max(0.0, until - monotonic()))
