"""Private reads of a batch on a real node, without Spark: existing rows and ranges, under writes and crashes."""

from __future__ import annotations

import subprocess
import threading
from contextlib import AbstractContextManager
from random import Random

import pytest

from canal_ha.errors import ConnectionLost, PositionLost, ServerRefused
from canal_ha.pipeline.options import SourceOptions, parse
from canal_ha.spark import private_reads
from canal_ha.spark.entries import READ, changes_of
from canal_ha.spark.existing import ExistingRows
from canal_ha.spark.private_reads import frames, plan
from lab import MySQL, Node, follow
from lab.node import PROGRAM
from tests.beside import beside

pytestmark = pytest.mark.real

ACCOUNTS = 4000


def options(node: Node, database: str, **given: object) -> SourceOptions:
    """Return the options of a batch. Small blocks make many of them."""
    base = {"servers": node.address, "destination": database, "segmentBytes": 1 << 14, "fetchSize": 16, **given}
    return parse({name: str(value) for name, value in base.items()}).for_batch()


def moving_money(server: MySQL, database: str) -> AbstractContextManager[None]:
    """Move money between accounts all the time; some close and open again. No transaction changes the total."""

    def write(stopping: threading.Event) -> None:
        random = Random(3)
        with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while not stopping.wait(0.002):
                giver, taker = random.sample(range(ACCOUNTS), 2)
                if random.random() < 0.1:
                    cursor.execute(f"UPDATE {database}.a SET id = {ACCOUNTS} + id WHERE id = {giver}")
                    cursor.execute(f"UPDATE {database}.a SET id = id - {ACCOUNTS} WHERE id = {ACCOUNTS} + {giver}")
                cursor.execute(f"UPDATE {database}.a SET money = money - 5 WHERE id = {giver}")
                cursor.execute(f"UPDATE {database}.a SET money = money + 5 WHERE id = {taker}")
                connection.commit()

    return beside(write)


def test_existing_rows_are_those_of_one_moment(mysql: MySQL, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a writer, each account comes once and the total is right, also if the node dies under the read."""
    blocks = 0

    class DyingNode(ExistingRows):
        def add(self, frames: bytes) -> None:
            nonlocal blocks
            super().add(frames)
            blocks += 1
            if blocks == 3:
                node.kill()
                node.start()

    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.a (id INT PRIMARY KEY, money INT)")
    rows = ", ".join(f"({number}, 100)" for number in range(ACCOUNTS))
    mysql.execute(f"INSERT INTO {database}.a VALUES {rows}")
    settings = follow(mysql, {"canal.instance.memory.buffer.size": "64"})
    with Node({database: settings}) as node, moving_money(mysql, database):
        wanted = options(node, database, snapshot=f"{database}.a")
        for fold in (ExistingRows, DyingNode):
            monkeypatch.setattr(private_reads, "ExistingRows", fold)
            found = [
                (int(row[0] or -1), int(row[1] or -1))
                for block in frames(wanted, plan(wanted, database))
                for change in changes_of(block, "block")
                for row in change.after
                if change.op == READ
            ]
            assert sorted(key for key, _ in found) == list(range(ACCOUNTS))
            assert sum(money for _, money in found) == 100 * ACCOUNTS
        assert blocks > 6
        [destination] = node.status()["destinations"]
        assert destination["streams"] == []


def test_a_range_comes_once_also_if_the_node_dies(mysql: MySQL, database: str) -> None:
    """The bounds are those of the plan; what is redelivered is dropped. Binlogs that are gone refuse the read."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(999))")
    begin = ":".join(map(str, mysql.position()))
    rows = [f"INSERT INTO {database}.t VALUES ({number}, REPEAT('x', 999))" for number in range(300)]
    mysql.execute(*rows)
    with Node({database: follow(mysql)}) as node:
        wanted = options(node, database, startingOffsets=begin, filter=rf"{database}\..*")
        planned = plan(wanted, database)
        mysql.execute(f"INSERT INTO {database}.t VALUES (1000, '')")
        assert plan(options(node, database, startingOffsets=begin, endingOffsets=planned.until), database) == planned
        found, died = [], False
        for block in frames(wanted, planned):
            found += [int(row[0] or -1) for change in changes_of(block, "block") for row in change.after]
            if not died and len(found) > 20:
                died = True
                node.kill()
                node.start()
        assert died
        assert found == list(range(300))
        lost = options(node, database, startingOffsets="mysql-bin.999999:4")
        with pytest.raises(ServerRefused, match="does not exist; the binlog reaches from"):
            plan(lost, database)


def test_a_range_of_one_server_is_not_read_from_another(database: str) -> None:
    """The source switches behind the plan, or under the read: the same position is another place there."""
    statements = [f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(999))"]
    rows = [f"INSERT INTO {database}.t VALUES ({number}, REPEAT('x', 999))" for number in range(300)]
    with MySQL(server_id=1) as mysql, MySQL(server_id=2) as other:  # new ones: both have the positions of the range
        begin = ":".join(map(str, mysql.position()))
        mysql.execute(*statements, *rows)
        other.execute(*statements, *rows, *[f"UPDATE {database}.t SET v = 'y' WHERE id = {n}" for n in range(300)])
        switched = {"canal.instance.standby.address": other.address}
        with Node({database: follow(mysql, switched)}) as node:
            planned = plan(options(node, database, startingOffsets=begin), database)
            reading = frames(options(node, database, startingOffsets=begin), planned)
            next(reading)
            switch = [PROGRAM, "source", "switch", "--destination", database, "--to", "standby"]
            subprocess.run([*switch, "--conf", str(node.conf)], timeout=90, check=True)
            with pytest.raises(PositionLost, match="another server"):
                list(frames(options(node, database, startingOffsets=begin), planned))
            node.kill()
            node.start()
            with pytest.raises(PositionLost, match="another server"):
                list(reading)


def test_existing_rows_of_a_table_that_cannot_be_read_end_the_query(mysql: MySQL, database: str) -> None:
    """The read began again for ever."""
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.a (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.none (id INT)",
        f"INSERT INTO {database}.a VALUES (1), (2)",
    )
    with Node({database: follow(mysql)}) as node:
        wanted = options(node, database, snapshot=f"{database}.a,{database}.none")
        with pytest.raises(ServerRefused, match="has no primary key"):
            list(frames(wanted, plan(wanted, database)))


def test_existing_rows_are_not_begun_for_ever(mysql: MySQL, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some lost connections the query ends."""
    begun = 0

    class DyingNode(ExistingRows):
        def add(self, frames: bytes) -> None:
            nonlocal begun
            super().add(frames)
            begun += 1
            node.kill()
            node.start()

    monkeypatch.setattr(private_reads, "ExistingRows", DyingNode)
    monkeypatch.setattr(private_reads, "BEGINNINGS", 2)
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.a (id INT PRIMARY KEY, money INT)")
    mysql.execute(f"INSERT INTO {database}.a VALUES {', '.join(f'({number}, 1)' for number in range(ACCOUNTS))}")
    with Node({database: follow(mysql, {"canal.instance.memory.buffer.size": "64"})}) as node:
        wanted = options(node, database, snapshot=f"{database}.a")
        with pytest.raises(ConnectionLost, match="has lost its connection, 2 times"):
            list(frames(wanted, plan(wanted, database)))
    assert begun == 2
