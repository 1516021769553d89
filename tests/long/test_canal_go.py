"""canal-go, the Go client, on a cluster of two nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import SqlServer, ZooKeeper
from tests.compat.test_peers import CHANGES, cluster, ours
from tests.node import workload
from tests.peers import lines


@pytest.mark.long
def test_the_same_rows(zookeeper: ZooKeeper, source_server: SqlServer, database: str, tmp_path: Path) -> None:
    """Both clients get the same rows of a mixed workload, value by value and in the same order."""
    rehearsal, tables = f"{database}_r", rf"{database}\..*"
    for name in (database, rehearsal):
        workload.create(source_server, name)
    with cluster(zookeeper, source_server, database) as node:
        count = workload.run(source_server, rehearsal, CHANGES)
        peer = lines.golang(tmp_path / "go", node.port, "example", 1004, tables, count)
        try:
            mine = ours(node, tables, 1003, lambda: workload.run(source_server, database, CHANGES))
            theirs = peer.read()
        finally:
            peer.kill()
    assert theirs == mine
