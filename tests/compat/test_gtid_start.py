"""A start at canal.instance.master.gtid alone, with gtidon and without journal, position or time."""

from __future__ import annotations

import pytest

from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab import Node, SqlServer, follow
from tests.node.following import following
from tests.waiting import until


@pytest.mark.real
def test_a_configured_set_is_where_the_first_client_begins(source_server: SqlServer, database: str) -> None:
    """The first client begins behind the set, and every entry has the set so far. (canal wants a time, too.)"""
    source_server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    source_server.execute(f"INSERT INTO {database}.t VALUES (1)", "FLUSH BINARY LOGS")
    behind = source_server.gtid_set()
    source_server.execute(f"INSERT INTO {database}.t VALUES (2)", f"INSERT INTO {database}.t VALUES (3)")
    settings = {"canal.instance.gtidon": "true", "canal.instance.master.gtid": behind}
    entries: list[pb.Entry] = []
    with (
        Node({"example": follow(source_server, settings)}) as node,
        following(node, tables=rf"{database}\..*") as client,
    ):

        def both() -> bool:
            message = client.get_without_ack(100, 200)
            entries.extend(message.entries)
            if message:
                client.ack(message.id)
            return sum(one.entryType == pb.TRANSACTIONEND for one in entries) >= 2

        until(both, what="two transactions")
    rows = [
        row.afterColumns[0].value
        for one in entries
        if one.entryType == pb.ROWDATA
        for row in pb.RowChange.FromString(one.storeValue).rowDatas
    ]
    assert rows == ["2", "3"]
    assert all(one.header.gtid and one.header.gtid != behind for one in entries)
    assert set(entries[-1].header.gtid.split(",")) == set(source_server.gtid_set().split(","))
