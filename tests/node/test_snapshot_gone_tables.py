"""Snapshots whose tables go before their turn: dropped, or renamed by a tool that changes schemas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from canal_ha.errors import SnapshotRefused
from canal_ha.pipeline.access import SourceAccess
from canal_ha.pipeline.options import parse
from lab import Node, SqlServer, follow
from tests.node.following import following
from tests.node.test_snapshot_of_client import snapshots

pytestmark = pytest.mark.real


@contextmanager
def paused(server: SqlServer, database: str) -> Iterator[tuple[Node, SourceAccess]]:
    """Yield a node with a paused snapshot of the tables first, gone and last; `gone` was dropped meanwhile."""
    for table in ("first", "gone", "last"):
        server.execute(
            f"CREATE DATABASE IF NOT EXISTS {database}",
            f"CREATE TABLE {database}.{table} (id INT PRIMARY KEY)",
            f"INSERT INTO {database}.{table} VALUES (1), (2)",
        )
    with Node({"example": follow(server)}) as node, following(node, tables=rf"{database}\..*"):
        snapshots(node).start([f"{database}.first", f"{database}.gone", f"{database}.last"])
        snapshots(node).pause()
        server.execute(f"DROP TABLE {database}.gone")
        options = parse({"servers": node.address, "destination": "example"})
        yield node, SourceAccess("example", options, rf"{database}\..*")


def test_a_table_can_be_added_while_another_one_of_the_snapshot_is_gone(mysql: SqlServer, database: str) -> None:
    """The request was refused because of a table that it did not name."""
    with paused(mysql, database) as (node, _):
        state = snapshots(node).add([f"{database}.last"])
        assert state["tables"] == [f"{database}.first", f"{database}.gone", f"{database}.last"]


def test_a_live_table_is_read_again_while_another_one_of_the_snapshot_is_gone(mysql: SqlServer, database: str) -> None:
    """The node named the other table, and a pipeline took its own one for gone: its copy stayed empty."""
    with paused(mysql, database) as (node, access):
        before = snapshots(node).state()["id"]
        access.read_again(node.address, [f"{database}.last"])
        assert snapshots(node).state()["id"] != before


def test_a_table_that_is_gone_is_not_read_again(mysql: SqlServer, database: str) -> None:
    """Its statement follows in the stream, so this is no error; any other refusal is one."""
    with paused(mysql, database) as (node, access):
        before = snapshots(node).state()
        access.read_again(node.address, [f"{database}.gone"])
        assert snapshots(node).state()["id"] == before["id"]
        with pytest.raises(SnapshotRefused, match="cannot be read again"):
            access.read_again(node.address, ["shop"])
