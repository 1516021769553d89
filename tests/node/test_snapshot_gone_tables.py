"""Snapshots whose tables go before their turn: dropped, or renamed by a tool that changes schemas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from canal_ha.cli.main import group
from canal_ha.errors import SnapshotRefused
from canal_ha.pipeline.access import SourceAccess
from canal_ha.pipeline.options import parse
from lab import Node, SqlServer, follow
from tests.node.following import following
from tests.node.test_snapshot_of_client import snapshots
from tests.waiting import until

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
    with Node({"example": follow(server)}) as node:
        with following(node, tables=rf"{database}\..*"):
            pass
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


def test_a_snapshot_goes_on_without_a_table_that_was_dropped_before_its_turn(
    source_server: SqlServer, database: str
) -> None:
    """Nothing got past it: every resume failed again. The error names the command that helps."""
    with paused(source_server, database) as (node, _), following(node, tables=rf"{database}\..*") as client:
        snapshot = snapshots(node)
        snapshot.resume()

        def is_now(phase: str) -> bool:
            client.get(100, 100)
            return bool(snapshot.state()["phase"] == phase)

        until(lambda: is_now("failed"), what="the failure")
        command = f"resume --destination example --client-id 1001 --leave-out {database}.gone"
        assert f"`canal-ha snapshot {command}`" in snapshot.state()["error"]
        with pytest.raises(SnapshotRefused, match=r"has not left to read shop\.other"):
            snapshot.resume(leave_out=["shop.other"])
        arguments = ["snapshot", *command.split(), "--conf", str(node.conf)]
        done = CliRunner().invoke(group, arguments)
        assert done.exit_code == 0, done.output
        assert f"of 2 tables, without {database}.gone" in done.output
        until(lambda: is_now("done"), what="the end")
        state = snapshot.state()
        assert (state["rows"], state["tables"]) == (4, [f"{database}.first", f"{database}.last"])
        assert state["left_out"] == [f"{database}.gone"]


def test_a_snapshot_of_which_the_only_table_is_left_out_ends(mysql: SqlServer, database: str) -> None:
    """It is done, and says that it read nothing of the table."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.nokey (id INT)")
    with Node({"example": follow(mysql)}) as node, following(node, tables=rf"{database}\..*") as client:
        snapshot = snapshots(node)
        snapshot.start([f"{database}.nokey"])
        until(lambda: snapshot.state()["phase"] == "failed", what="the failure")
        assert snapshot.resume(leave_out=[f"{database}.nokey"])["tables"] == []

        def done() -> bool:
            client.get(100, 100)
            return bool(snapshot.state()["phase"] == "done")

        until(done, what="the end")
        assert snapshot.state()["left_out"] == [f"{database}.nokey"]
