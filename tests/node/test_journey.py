"""The row of ARCHITECTURE.md, from MySQL to a Python value, checked at each stop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.message import Message
from canal_ha.client.rows import rows_of
from canal_ha.model.position import LogPosition
from lab import Node, SqlServer, follow
from lab.ports import LOOPBACK
from tests.waiting import until


@pytest.mark.real
def test_one_row(source_server: SqlServer, database: str) -> None:
    """An UPDATE arrives with both images and the transaction's end; its ACK makes the cursor durable and logs it."""
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.orders (id int PRIMARY KEY, state varchar(10))",
        f"INSERT INTO {database}.orders VALUES (7, 'new')",
    )
    with (
        Node({"example": follow(source_server)}) as node,
        SimpleConnector(LOOPBACK, node.port, "example") as client,
    ):
        client.subscribe(rf"{database}\..*")
        journal, before = source_server.position()
        source_server.execute(f"UPDATE {database}.orders SET state = 'paid' WHERE id = 7")

        def batch() -> Message | None:
            got = client.get_without_ack(100, 200)
            return None if got.id == -1 else got

        message = until(batch, what="the batch")
        kinds = [entry.entryType for entry in message.entries]
        row = next(row for row in rows_of(message.entries) if row.type == "UPDATE")
        assert (row.schema, row.table) == (database, "orders")
        assert row.before == {"id": 7, "state": "new"}
        assert row.after == {"id": 7, "state": "paid"}
        assert (row.journal, row.offset > before) == (journal, True)
        change = next(entry for entry in message.entries if entry.entryType == 2 and entry.header.eventType == 2)
        assert [(pair.key, pair.value) for pair in change.header.props][-1] == ("rowsCount", "1")
        assert kinds[-1] == 3  # the transaction's end
        client.ack(message.id)
        file = Path(node.conf) / "example" / "meta.dat"
        end = message.entries[-1].header

        def durable() -> bool:
            cursors = [data.get("cursor") for data in json.loads(file.read_text())["clientDatas"]]
            return any(c and LogPosition.from_dict(c).offset == end.logfileOffset for c in cursors)

        until(durable, what="the cursor in meta.dat")
        line = f"clientId:1001 cursor:[{end.logfileName},{end.logfileOffset},{end.executeTime}]"
        log = node.directory / "logs" / "example" / "meta.log"
        until(lambda: log.exists() and line in log.read_text(), what="the line in meta.log")
