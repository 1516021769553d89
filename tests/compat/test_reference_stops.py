"""Statements on which canal's server stops for ever; here each of them passes from a real server to a client.

The name of each case begins with the error that canal's server printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import rows_of
from lab import MariaDB, MySQL, Node, SqlServer, follow
from lab.ports import LOOPBACK
from tests.waiting import until

pytestmark = pytest.mark.real

Values = dict[str, Any]
Case = tuple[str, tuple[str, ...], list[Values | None]]
"""(what, statements, the rows after each change; None for a deleted one)"""

CHANGED_KEYS: Case = (
    "MySQL8.0 unmatch column metadata: changed primary keys",
    (
        "CREATE TABLE dk (id int PRIMARY KEY, a int NOT NULL)",
        "ALTER TABLE dk DROP PRIMARY KEY, ADD PRIMARY KEY (a)",
        "INSERT INTO dk VALUES (1,2)",
        "ALTER TABLE dk DROP PRIMARY KEY",
        "INSERT INTO dk VALUES (3,4)",
        "ALTER TABLE dk ADD CONSTRAINT PRIMARY KEY (id,a)",
        "INSERT INTO dk VALUES (5,6)",
    ),
    [{"id": 1, "a": 2}, {"id": 3, "a": 4}, {"id": 5, "a": 6}],
)
CHINESE: Case = (
    "MySQL8.0 unmatch column metadata: non-ASCII names",
    (
        "CREATE TABLE `表中文` (`编号` int PRIMARY KEY, `名` varchar(10)) CHARACTER SET utf8mb4",
        "INSERT INTO `表中文` VALUES (1,'值')",
    ),
    [{"编号": 1, "名": "值"}],
)

MYSQL: tuple[Case, ...] = (
    (
        "MySQL8.0 unmatch column metadata: SERIAL",
        ("CREATE TABLE k_ser (id serial, v int)", "INSERT INTO k_ser (v) VALUES (1)"),
        [{"id": 1, "v": 1}],
    ),
    (
        "column size is not match: INVISIBLE added by ALTER",
        (
            "CREATE TABLE t_gen (id int PRIMARY KEY, a int, g int AS (a + 1) VIRTUAL, s int AS (a * 2) STORED)",
            "ALTER TABLE t_gen ADD COLUMN inv int INVISIBLE DEFAULT 3",
            "INSERT INTO t_gen (id,a) VALUES (3,5)",
        ),
        [{"id": 3, "a": 5, "g": 6, "s": 10, "inv": 3}],
    ),
    CHINESE,
    CHANGED_KEYS,
    (
        "NullPointerException with filter.dml.*: a compressed transaction",
        (
            "CREATE TABLE tx1 (id int PRIMARY KEY, v int)",
            "SET SESSION binlog_transaction_compression=ON",
            "INSERT INTO tx1 VALUES (80,80)",
            "DELETE FROM tx1",
        ),
        [{"id": 80, "v": 80}, None],
    ),
)
MARIADB: tuple[Case, ...] = (
    CHANGED_KEYS,
    CHINESE,
    (
        "not found in db: sequences",
        ("CREATE SEQUENCE sq START WITH 5 CACHE 10", "SELECT NEXTVAL(sq)"),
        [{"next_not_cached_value": 15}],
    ),
    (
        "not found in db: system-versioned tables",
        ("CREATE TABLE sv (id int PRIMARY KEY, v int) WITH SYSTEM VERSIONING", "INSERT INTO sv VALUES (1,1)"),
        [{"id": 1, "v": 1}],
    ),
    (
        "column size is not match: CREATE OR REPLACE",
        (
            "CREATE OR REPLACE TABLE orr (id int PRIMARY KEY)",
            "CREATE OR REPLACE TABLE orr (id int PRIMARY KEY, b int)",
            "INSERT INTO orr VALUES (1,2)",
        ),
        [{"id": 1, "b": 2}],
    ),
    (
        "column size is not match: ADD COLUMN IF NOT EXISTS, DELETE RETURNING",
        (
            "CREATE TABLE oi (id int PRIMARY KEY, b int)",
            "INSERT INTO oi VALUES (1,2)",
            "ALTER TABLE oi ADD COLUMN IF NOT EXISTS b int, ADD COLUMN IF NOT EXISTS c int",
            "INSERT INTO oi VALUES (2,3,4)",
            "DELETE FROM oi WHERE id=1 RETURNING *",
        ),
        [{"id": 1, "b": 2}, {"id": 2, "b": 3, "c": 4}, None],
    ),
)


def changes(
    node: Node, tables: str, server: SqlServer, statements: tuple[str, ...], database: str, count: int
) -> list[Any]:
    """Execute the statements, and return the row after each change as a client gets it. count: rows to wait for."""
    found: list[Any] = []
    with SimpleConnector(LOOPBACK, node.port, "example", 1001) as client:
        client.subscribe(tables)
        server.execute(*statements, database=database)

        def enough() -> bool:
            message = client.get_without_ack(1000, 200)
            if message:
                rows = rows_of(message.entries)
                found.extend(row.after for row in rows if row.type in ("INSERT", "UPDATE", "DELETE"))
                client.ack(message.id)
            return len(found) >= count

        until(enough, what=f"{count} rows of {statements}")
    return found


@pytest.fixture(scope="module")
def mysql_node(mysql: MySQL) -> Iterator[Node]:
    """A node that follows MySQL with default settings."""
    with Node({"example": follow(mysql)}) as node:
        yield node


@pytest.fixture(scope="module")
def mariadb_node(mariadb: MariaDB) -> Iterator[Node]:
    """A node that follows MariaDB with default settings."""
    with Node({"example": follow(mariadb)}) as node:
        yield node


def check(node: Node, server: SqlServer, database: str, case: Case) -> None:
    """Check that the rows of a case arrive with all their columns; the servers' hidden columns may come, too."""
    _, statements, expected = case
    server.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    found = changes(node, rf"{database}\..*", server, statements, database, len(expected))
    assert len(found) == len(expected)
    for got, wanted in zip(found, expected, strict=True):
        if wanted is None:
            assert got is None
        else:
            assert {name: got[name] for name in wanted} == wanted


@pytest.mark.parametrize("case", MYSQL, ids=lambda case: case[0])
def test_mysql(mysql_node: Node, mysql: MySQL, database: str, case: Case) -> None:
    """A statement that stops canal on MySQL does not stop a node."""
    check(mysql_node, mysql, database, case)


@pytest.mark.parametrize("case", MARIADB, ids=lambda case: case[0])
def test_mariadb(mariadb_node: Node, mariadb: MariaDB, database: str, case: Case) -> None:
    """A statement that stops canal on MariaDB does not stop a node."""
    check(mariadb_node, mariadb, database, case)


def test_filtered_kinds_of_changes_in_compressed_transactions(mysql: MySQL, database: str) -> None:
    """With filter.dml.insert and filter.dml.update, only the DELETE of the compressed transactions arrives."""
    switches = {"canal.instance.filter.dml.insert": "true", "canal.instance.filter.dml.update": "true"}
    mysql.execute(f"CREATE DATABASE {database}")
    with Node({"example": follow(mysql, switches)}) as node:
        found = changes(node, rf"{database}\..*", mysql, MYSQL[-1][1], database, 1)
    assert found == [None]


def test_another_connection_charset(mysql: MySQL, database: str) -> None:
    """Names of schemas, tables and columns are read as UTF-8, whatever connectionCharset says of values."""
    mysql.execute(f"CREATE DATABASE {database}")
    with Node({"example": follow(mysql, {"canal.instance.connectionCharset": "GBK"})}) as node:
        statements = (
            "CREATE TABLE `表中文` (`编号` int PRIMARY KEY, `名` varchar(10) CHARACTER SET gbk)",
            "INSERT INTO `表中文` VALUES (1,'值')",
        )
        assert changes(node, rf"{database}\..*", mysql, statements, database, 1) == [{"编号": 1, "名": "值"}]


def test_names_of_a_server_of_another_charset(database: str) -> None:
    """Without the table history, definitions are asked for in UTF-8, even if the server's default is latin1."""
    with MariaDB(extra=["--character-set-server=latin1"]) as server:
        server.execute(f"CREATE DATABASE {database}")
        with Node({"example": follow(server, {"canal.instance.tsdb.enable": "false"})}) as node:
            statements = ("CREATE TABLE `表中文` (id int PRIMARY KEY)", "INSERT INTO `表中文` VALUES (1)")
            assert changes(node, rf"{database}\..*", server, statements, database, 1) == [{"id": 1}]


def test_an_account_without_a_password(database: str) -> None:
    """A node logs in with an empty password. canal sends a scramble for it, which servers refuse."""
    with MariaDB() as server:
        server.execute(
            f"CREATE DATABASE {database}",
            "CREATE USER 'open'@'%' IDENTIFIED BY ''",
            "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'open'@'%'",
        )
        account = {"canal.instance.dbUsername": "open", "canal.instance.dbPassword": ""}
        with Node({"example": follow(server, account)}) as node:
            statements = ("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
            assert changes(node, rf"{database}\..*", server, statements, database, 1) == [{"id": 1}]
