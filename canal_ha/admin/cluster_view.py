"""ClusterView: looks at the whole cluster, for the page of this node. Reactor thread; questions go through a pool.

It asks ZooKeeper and all nodes at the same time. What it found counts for LOOK_AGAIN_S; an older picture is shown once
more while it looks again, so that the page does not wait. A node is asked with the login of whoever looks.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from canal_ha import logs
from canal_ha.accounts.account import Account
from canal_ha.admin.cluster_document import SEEN_SHAPE, Status, alone, cluster_document
from canal_ha.admin.document import shown
from canal_ha.admin.guest import Guest
from canal_ha.admin.placements import Placements
from canal_ha.client.http_access import HttpAccess
from canal_ha.client.node_answer import STATUS
from canal_ha.client.node_http import get
from canal_ha.cluster.overview import NodeView, Overview, read_overview
from canal_ha.errors import CanalError, NodeUnreachable, ZooKeeperUnavailable
from canal_ha.model.clock import Timer
from canal_ha.model.excerpt import some
from canal_ha.server.http_login import HttpRefusal
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.reading import BlockingZnodes

LOOK_AGAIN_S = 2.0
SHOWN_MOST_S = 10.0  # age of a picture that is shown while a new one is made
SILENT_MOST_S = 2.0  # of a node that is asked
ANSWER_MOST_S = 5.0
ANSWER_MOST_BYTES = 8 * 1024 * 1024
ASKED_AT_ONCE = 16
UNUSED_S = 60.0  # then the session with ZooKeeper is closed
GUESTS_MOST = 32  # whose pictures are kept

LOG = logs.get(__name__)
T = TypeVar("T")


class Tree:
    """What ZooKeeper says of the cluster. One session, open while somebody looks. Called on the pool, by one at a time.

    open_session: connects.
    """

    def __init__(self, open_session: Callable[[], BlockingZnodes]) -> None:
        self._open_session = open_session
        self._znodes: BlockingZnodes | None = None

    def read(self) -> tuple[Overview, tuple[str, ...]]:
        """Return the overview, and the paths that say where nodes are and that everybody may change.

        Raises ZooKeeperUnavailable.
        """
        if self._znodes is not None and not self._znodes.connected:
            self.close()
        if self._znodes is None:
            self._znodes = self._open_session().__enter__()
        try:
            self._znodes.catch_up()
            overview = read_overview(self._znodes)
            members = [tree.member(node.address) for node in overview.nodes if node.status_address]
            return overview, self._znodes.open_to_all([tree.ROOT, tree.CLUSTER, *members])
        except ZooKeeperUnavailable:
            self.close()
            raise

    def close(self) -> None:
        """Close the session; the next `read` opens one."""
        znodes, self._znodes = self._znodes, None
        if znodes is not None:
            znodes.__exit__(None, None, None)


class ClusterView:
    """See the module."""

    def __init__(
        self,
        reactor: Any,
        address: str,
        own_status: Callable[[Account], dict[str, Any]],
        own_seen: Callable[[Account], dict[str, Any]],
        placements: Placements,
        tree_of: Tree | None = None,
        tls_ca: str = "",
    ) -> None:
        """Begin; nothing is asked before somebody looks.

        reactor: Twisted's.
        address: of this node, as in ZooKeeper.
        own_status: returns the status document of this node for an account.
        own_seen: returns what this node has seen, for an account.
        placements: where destinations run; asked without ZooKeeper for those that are paused.
        tree_of: ZooKeeper; None without.
        tls_ca: see HttpAccess; authorities of the nodes' certificates.
        """
        self._reactor = reactor
        self._address = address
        self._own_status = own_status
        self._own_seen = own_seen
        self._placements = placements
        self._tree = tree_of
        self._tls_ca = tls_ca
        self._pool = ThreadPool(0, ASKED_AT_ONCE, "page")
        self._pictures: OrderedDict[tuple[str, str], tuple[float, dict[str, Any]]] = OrderedDict()
        self._looking: dict[Any, list[Deferred[Any]]] = {}  # who waits for which look
        self._unused: Timer | None = None
        self._open_paths: Sequence[str] = ()
        self._addresses: Mapping[str, str] = {}

    async def stop(self) -> None:
        """End the threads. A question under way ends first, within its time."""
        if self._unused and self._unused.active():
            self._unused.cancel()
        if self._pool.started:
            if self._tree:
                self._pool.callInThread(self._tree.close)
            await deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self._pool.stop)

    async def look(self, guest: Guest, *, fresh: bool = False) -> dict[str, Any]:
        """Return the document of the whole cluster; see cluster_document.

        guest: who looks.
        fresh: whether a picture from before this call is too old.
        """
        name = guest.account.name
        key = (name, guest.authorization if name else "")  # a guest without an account logs in nowhere
        now = self._reactor.seconds()
        document: dict[str, Any]
        at, document = self._pictures.get(key, (-SHOWN_MOST_S, {}))
        if not fresh and now - at < LOOK_AGAIN_S:
            return document
        looking = Deferred.fromCoroutine(self._shared(("picture", *key), lambda: self._look(key, guest), fresh=fresh))
        if not fresh and now - at < SHOWN_MOST_S:
            looking.addErrback(lambda failure: LOG.error("page.look_failed", error=repr(failure.value)))
            return document
        document = await looking
        return document

    async def ask(self, guest: Guest, owner: str, path: str, shape: Mapping[str, Any]) -> dict[str, Any]:
        """Return a document of another node. Raises NodeUnreachable.

        guest: who asks.
        owner: the node, as in ZooKeeper.
        path, shape: see node_http.get.
        """
        url, access = self.route(guest, owner)
        return await self.in_thread(lambda: _get(url, path, shape, access))

    def route(self, guest: Guest, node: str) -> tuple[str, HttpAccess]:
        """Return where another node answers, as of the last look, and the login for it.

        Raises NodeUnreachable if there is no address, or if the login may not go there.
        """
        url = self._addresses.get(node, "")
        if not url:
            raise NodeUnreachable(f"{node} has no status endpoint that this node knows")
        access = guest.access(self._tls_ca)
        if not access.safe_for(url, named_by_anybody=bool(self._open_paths)):
            raise NodeUnreachable(
                f"your login was not sent to {url}, because everybody may change {some(self._open_paths)} in"
                " ZooKeeper: run zk/acl.sh, or use TLS with canal.tls.ca; or open that node's own page"
            )
        return (url if "://" in url else f"http://{url}"), access

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do something that blocks, on the pool."""
        if not self._pool.started:
            self._pool.start()
        found: T = await deferToThreadPool(self._reactor, self._pool, work)
        return found

    # ---- inside

    async def _shared(self, key: Any, look: Callable[[], Any], *, fresh: bool) -> Any:
        """Look once for all who ask for the same at the same time.

        fresh: do not take the answer of a look that had begun before.
        """
        if key in self._looking:
            waiting: Deferred[Any] = Deferred()
            self._looking[key].append(waiting)
            if not fresh:
                return await waiting
            with suppress(Exception):
                await waiting
            return await self._shared(key, look, fresh=False)
        self._looking[key] = []
        try:
            found = await look()
        except BaseException as error:
            for waiting in self._looking.pop(key):
                waiting.errback(error)
            raise
        for waiting in self._looking.pop(key):
            waiting.callback(found)
        return found

    async def _look(self, key: tuple[str, str], guest: Guest) -> dict[str, Any]:
        own = self._own_status(guest.account)
        problem = ""
        if self._tree:
            try:
                overview, self._open_paths = await self._shared("tree", self._read_tree, fresh=True)
            except ZooKeeperUnavailable as error:
                overview, problem = alone(self._address, own), str(error)
        else:
            paused = [each.destination for each in await self._placements.placed() if each.paused]
            overview = alone(self._address, own, paused)
        self._addresses = {node.address: node.status_address for node in overview.nodes}
        others = [node for node in overview.nodes if node.status_address and node.address != self._address]
        answers: Any = await gatherResults([Deferred.fromCoroutine(self._asked(guest, node)) for node in others])
        statuses: dict[str, Status | str] = {self._address: own}
        seen = {self._address: self._own_seen(guest.account)}
        for node, (status, told) in zip(others, answers, strict=True):
            statuses[node.address] = status
            if told:
                seen[node.address] = told
        document = cluster_document(
            self._address, time.time(), overview, statuses, seen, lambda name: shown(guest.account, name), problem
        )
        self._pictures[key] = self._reactor.seconds(), document
        self._pictures.move_to_end(key)
        if len(self._pictures) > GUESTS_MOST:
            self._pictures.popitem(last=False)
        return document

    async def _read_tree(self) -> tuple[Overview, tuple[str, ...]]:
        assert self._tree
        if self._unused and self._unused.active():
            self._unused.cancel()
        try:
            return await self.in_thread(self._tree.read)
        finally:
            if self._pool.started:  # else the node has stopped meanwhile
                self._unused = self._reactor.callLater(UNUSED_S, self._pool.callInThread, self._tree.close)

    async def _asked(self, guest: Guest, node: NodeView) -> tuple[Status | str, dict[str, Any] | None]:
        """Return a node's status document, or why there is none, and what it has seen."""
        try:
            url, access = self.route(guest, node.address)
        except NodeUnreachable as error:
            return str(error), None
        try:
            return await self.in_thread(lambda: _questions(node, url, access))
        except CanalError as error:
            return str(error), None


def _questions(node: NodeView, url: str, access: HttpAccess) -> tuple[Status | str, dict[str, Any] | None]:
    status = _get(url, "/api/v1/status", STATUS, access)
    found = status["node"]["address"]
    if found != node.address:  # its endpoint is on loopback, so a node of this machine answered
        return f"{url} is {found} seen from here, not {node.address}: set canal.admin.http.bind there", None
    try:
        return status, _get(url, "/api/v1/seen", SEEN_SHAPE, access)
    except NodeUnreachable:  # an older version
        return status, None


def _get(url: str, path: str, shape: Mapping[str, Any], access: HttpAccess) -> dict[str, Any]:
    return get(url, path, shape, access, SILENT_MOST_S, ANSWER_MOST_S, ANSWER_MOST_BYTES)


def destination_in(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a destination of what `look` returned. Raises HttpRefusal."""
    for each in document["destinations"]:
        if each["destination"] == name:
            return dict(each)
    raise HttpRefusal(404, f"the cluster has no destination {name}")
