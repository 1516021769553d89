"""Rows as Arrow record batches, from a real database through a node."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from canal_ha.client.arrow import ArrowMessage
from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.connector import SimpleConnector
from lab import Node, SqlServer, follow
from lab.ports import LOOPBACK
from tests.waiting import until

ZONE = "Asia/Tokyo"
COLUMNS = {
    "id": ("BIGINT UNSIGNED PRIMARY KEY", pa.decimal128(20, 0)),
    "tiny": ("TINYINT", pa.int8()),
    "price": ("DECIMAL(12,3)", pa.decimal128(12, 3)),
    "ratio": ("DOUBLE", pa.float64()),
    "word": ("VARCHAR(20) CHARACTER SET utf8mb4", pa.string()),
    "raw": ("VARBINARY(8)", pa.binary()),
    "at": ("DATETIME(6)", pa.timestamp("us")),
    "stamp": ("TIMESTAMP(3) NULL", pa.timestamp("us", tz="UTC")),
    "day": ("DATE", pa.date32()),
    "doc": ("JSON", pa.string()),
    "size": ("ENUM('small','big')", pa.string()),
    "flags": ("SET('p','q','r')", pa.string()),
    "on": ("BIT(1)", pa.bool_()),
    "born": ("YEAR", pa.int32()),
}
VALUES = (
    "18446744073709551615, -128, -1.5, 0.1, 'Ünïcode \U0001f600', x'00ff', '2024-02-29 23:59:59.000001',"
    " '2024-07-01 12:00:00.250', '1000-01-01', '{\"a\": 1}', 'big', 'p,r', 1, 1999"
)
EXPECTED = {
    "id": Decimal(2**64 - 1), "tiny": -128, "price": Decimal("-1.500"), "ratio": 0.1, "word": "Ünïcode \U0001f600",
    "raw": b"\0\xff", "at": datetime(2024, 2, 29, 23, 59, 59, 1), "day": date(1000, 1, 1),
    "stamp": datetime(2024, 7, 1, 12, 0, 0, 250_000, tzinfo=UTC), "doc": '{"a": 1}',
    "size": "big", "flags": "p,r", "on": True, "born": 1999,
}  # fmt: skip


def collect(client: SimpleConnector | ClusterConnector, table: str, rows: int, **options: Any) -> list[pa.RecordBatch]:
    """Read and acknowledge batches until those of `table` hold `rows` rows; return these."""
    found: list[pa.RecordBatch] = []

    def more() -> bool:
        message: ArrowMessage = client.get_arrow(1000, 200, **options)
        found.extend(batch.rows for batch in message.batches if batch.table == table)
        client.ack(message.id)
        return bool(sum(batch.num_rows for batch in found) >= rows)

    until(more, what=f"{rows} rows of {table}")
    return found


@pytest.mark.real
def test_get_arrow(source_server: SqlServer, database: str) -> None:
    """Both connectors deliver typed columns, NULL, a statement and a new column. A new key is a delete and an insert.

    A TIMESTAMP is an instant. canal writes it in the time zone of its process, so the client must name that zone.
    """
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t ({', '.join(f'`{name}` {kind}' for name, (kind, _) in COLUMNS.items())})",
    )
    with Node({"example": follow(source_server)}, environment={"TZ": ZONE}) as node:
        address = f"{LOOPBACK}:{node.port}"
        with (
            SimpleConnector(LOOPBACK, node.port, "example") as client,
            ClusterConnector([address], "example", 1002) as other,
        ):
            for one in (client, other):
                one.subscribe(rf"{database}\..*")
            source_server.execute(
                "SET time_zone = '+00:00'",
                f"INSERT INTO {database}.t VALUES ({VALUES})",
                f"INSERT INTO {database}.t (id) VALUES (1)",
                f"UPDATE {database}.t SET id = 2 WHERE id = 1",
                f"ALTER TABLE {database}.t ADD late INT DEFAULT 5",
                f"DELETE FROM {database}.t WHERE id = 2",
            )
            batches = collect(client, "t", 6, time_zone=ZONE)
            again = collect(other, "t", 6, time_zone=ZONE)
    table = pa.concat_tables([pa.Table.from_batches([one]) for one in batches], promote_options="default")
    assert {name: table.schema.field(name).type for name in COLUMNS} == {
        name: kind for name, (_, kind) in COLUMNS.items()
    }
    rows = table.to_pylist()
    assert [row["_op"] for row in rows] == ["insert", "insert", "delete", "insert", "ddl", "delete"]
    assert {name: rows[0][name] for name in EXPECTED} == EXPECTED
    assert all(rows[1][name] is None for name in COLUMNS if name != "id")
    assert [row["id"] for row in rows] == [2**64 - 1, 1, 1, 2, None, 2]
    assert [row["late"] for row in rows[3:]] == [None, None, 5]
    assert "late INT" in rows[4]["_ddl"]
    places = [(row["_position"]["journal"], row["_position"]["offset"]) for row in rows]
    assert places == sorted(places)
    assert abs((datetime.now(UTC) - rows[0]["_ts"]).total_seconds()) < 300
    assert [row["id"] for batch in again for row in batch.to_pylist()] == [row["id"] for row in rows]
