"""AsyncConnector against a real node that follows a real server."""

from __future__ import annotations

import asyncio

import pytest

from canal_ha.client.async_connector import AsyncConnector
from canal_ha.client.rows import rows_of
from lab import MySQL, Node, follow
from lab.ports import LOOPBACK

pytestmark = pytest.mark.real


def test_rows_arrive_and_the_next_program_continues(mysql: MySQL, database: str) -> None:
    """Rows come as Python values and as Arrow columns, a GET that is cancelled loses none, and a read ends at its end.

    A second program begins behind what the first one has acknowledged.
    """
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(20))")
    tables = rf"{database}\.t"

    async def insert(*ids: int) -> None:
        values = ", ".join(f"({number}, 'v{number}')" for number in ids)
        await asyncio.to_thread(mysql.execute, f"INSERT INTO {database}.t VALUES {values}")

    async def read(client: AsyncConnector, count: int) -> list[int]:
        ids: list[int] = []
        async with asyncio.timeout(60):
            async for message in client:
                ids += [int(str(row.after["id"])) for row in rows_of(message) if row.after]
                await client.ack(message.id)
                if len(ids) >= count:
                    break
        return ids

    async def program(node: Node) -> None:
        async with AsyncConnector(LOOPBACK, node.port, "example", filter=tables) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await client.get_without_ack(1000, 60_000, eager=True)
            begin = "{}:{}".format(*mysql.position())
            await insert(1, 2)
            assert await read(client, 2) == [1, 2]
            await insert(3)
            message = await client.get_arrow(1000, 60_000, eager=True)
            while not message.batches:
                await client.ack(message.id)
                message = await client.get_arrow(1000, 60_000, eager=True)
            [batch] = message.batches
            assert batch.rows.column("v").to_pylist() == ["v3"]
        end = "{}:{}".format(*mysql.position())
        async with AsyncConnector(LOOPBACK, node.port, "example", filter=tables) as client:
            await insert(4)
            assert await read(client, 2) == [3, 4]
        async with AsyncConnector(LOOPBACK, node.port, "example", 1002, rollback_on_connect=False) as client:
            await client.read_from(begin, end, tables)
            assert await read(client, 1000) == [1, 2, 3]
        async with AsyncConnector(LOOPBACK, node.port, "example") as client:
            await client.unsubscribe()

    with Node({"example": follow(mysql)}) as node:
        asyncio.run(program(node))
