"""AdminPort: the status endpoint of a node, with the page and all that it needs. Reactor thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import maybeDeferred

from canal_ha.accounts.account import Account
from canal_ha.admin.actions import actions_of
from canal_ha.admin.additions import DestinationFiles, addition_actions
from canal_ha.admin.address_file import url_of
from canal_ha.admin.api import StatusApi
from canal_ha.admin.cluster_view import ClusterView, Tree
from canal_ha.admin.cursors import cursor_actions
from canal_ha.admin.listening import hosts, listen, port_of
from canal_ha.admin.pages import WholePage
from canal_ha.admin.placements import Placements, placement_actions
from canal_ha.admin.seen import Sightings
from canal_ha.admin.sessions import Sessions
from canal_ha.cluster.cluster import Cluster, node_address
from canal_ha.config.model import CanalConfig
from canal_ha.instance.embedded import Embedded
from canal_ha.node.reports import reports_of, seen_document
from canal_ha.node.seeing import Seeing
from canal_ha.server.certificates import Certificates
from canal_ha.server.entrance import Entrance
from canal_ha.server.probes import Probes
from canal_ha.zookeeper.reading import BlockingZnodes


class AdminPort:
    """See the module. url: where it listens, for programs on this machine; "" before the start."""

    def __init__(
        self,
        config: CanalConfig,
        reactor: Any,
        own_status: Callable[[Account], dict[str, Any]],
        entrance: Entrance,
        embedded: Embedded,
        cluster: Cluster | None,
        placements: Placements,
        files: DestinationFiles,
        certificates: Certificates | None,
        configuration: Callable[[str], dict[str, Any] | None],
        probes: Probes,
    ) -> None:
        """Make it; it listens after `start`.

        config: of the node.
        reactor: Twisted's.
        own_status: returns the status document for an account.
        entrance: knows the accounts.
        embedded: the instances here.
        cluster: None without ZooKeeper.
        placements: where destinations run.
        files: of the destinations of this node.
        certificates: for TLS; None: plain HTTP.
        configuration: see reports_of.
        probes: answer without a login.
        """
        self.url = ""
        self._config = config
        self._reactor = reactor
        self._entrance = entrance
        self._certificates = certificates
        self._probes = probes
        self._listening: Any = None
        seen = Sightings()
        self._seeing = Seeing(seen, embedded.status, cluster, reactor)
        self._view = ClusterView(
            reactor,
            node_address(config),
            own_status,
            partial(seen_document, seen),
            placements,
            Tree(partial(BlockingZnodes, config.zk_servers, config.zk_access, keeps=True)) if cluster else None,
            config.tls.ca_file if config.tls else "",
        )
        sessions = Sessions(reactor)
        actions = {
            **actions_of(embedded.switch_source, embedded.change_snapshot),
            **placement_actions(placements),
            **addition_actions(files),
            **cursor_actions(embedded.move_cursor, embedded.delete_cursor),
        }
        reports = reports_of(self._view, seen, embedded, placements, config.log_dir, configuration)
        self._pages = WholePage(node_address(config), entrance, sessions, self._view, actions, reports, reactor)
        self._api = StatusApi(
            own_status,
            entrance=entrance,
            answers=hosts(config.admin_http_bind, (config.register_ip, config.ip)),
            actions=actions,
            reports=reports,
            sessions=sessions,
            pages=self._pages,
        )

    def start(self) -> int:
        """Listen, and return the port. Raises CannotListenError if the address is not this machine's."""
        config = self._config
        self._listening = listen(
            self._reactor,
            config.admin_http_bind,
            config.admin_http_port,
            self._api,
            self._entrance,
            self._certificates,
            self._probes,
        )
        port = port_of(self._listening)
        self.url = url_of(self._listening.getHost().host, port, tls=self._certificates is not None)
        self._seeing.start()
        return port

    async def stop(self) -> None:
        """Stop listening and looking."""
        self._seeing.stop()
        if self._listening:
            await maybeDeferred(self._listening.stopListening)
        self._pages.stop()
        await self._view.stop()
