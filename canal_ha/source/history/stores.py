"""Stores: where the table history of a destination is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from canal_ha.config.model import InstanceConfig
from canal_ha.decode.history.store import HistoryStore
from canal_ha.errors import Fenced, HistoryUnavailable, TransactionRefused, ZooKeeperUnavailable
from canal_ha.source.history.sql_store import FILE, in_file, in_mysql
from canal_ha.source.history.znode_store import WaitingZnodes, ZnodeStore
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Check


@dataclass(frozen=True, slots=True)
class HistoryClaim:
    """A node's claim to a destination in ZooKeeper. Implements Fencing.

    destination: its name.
    epoch: the data version of `{d}` after the claim.
    znodes: ZooKeeper.
    token: makes the claim different from any other one.
    """

    destination: str
    epoch: int
    znodes: WaitingZnodes
    token: str = field(default_factory=lambda: uuid4().hex)

    @property
    def holder(self) -> str:
        """See Fencing. A destination that an operator reset begins again at epoch 1, so the epoch alone may repeat."""
        return f"epoch {self.epoch} ({self.token})"

    @property
    def fence(self) -> Check:
        """Demand in each transaction that no other node has claimed the destination."""
        return Check(tree.destination(self.destination), self.epoch)

    def confirm(self) -> None:
        """See Fencing."""
        try:
            self.znodes.transaction([self.fence])
        except (TransactionRefused, Fenced, ZooKeeperUnavailable) as error:
            raise HistoryUnavailable(f"{self.destination}: the table history is not used: {error}") from error


def history_store(config: InstanceConfig, claim: HistoryClaim | None = None) -> HistoryStore | None:
    """Return the store of this destination's table history; None if it is kept in memory only.

    config: of the destination, or of one source of a group.
    claim: of the node; None for a node that runs the destination without ZooKeeper.
    """
    if not config.decode.table_history:
        return None
    if config.tsdb_url:
        return in_mysql(
            config.destination, config.tsdb_url, config.tsdb_username, config.tsdb_password, claim, tls=config.tsdb_tls
        )
    directory = Path(config.tsdb_dir) if config.tsdb_dir else None
    if claim is None or not config.tsdb_in_zookeeper:
        return in_file(config.destination, directory) if directory else None
    before = in_file(config.destination, directory) if directory and (directory / FILE).exists() else None
    return ZnodeStore(tree.history(config.destination), claim.fence, claim.znodes, before)


def missing_file(config: InstanceConfig) -> Path | None:
    """Return the directory of the history's file if there is no file yet; None if there is, or needs to be none.

    config: of the destination, or of one source of a group, on a node that does not keep the history in ZooKeeper.
    """
    directory = Path(config.tsdb_dir)
    kept_in_file = config.decode.table_history and config.tsdb_dir and not config.tsdb_url
    return directory if kept_in_file and not (directory / FILE).exists() else None
