"""A switch soon after statements that change tables, with MINIMAL metadata: rows keep the columns of their time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import Row, rows_of
from lab import MariaDB, MySQL, Node, SqlServer
from tests.positions.pair import Pair, paired
from tests.positions.reading import connected, rows
from tests.positions.test_switch import switched
from tests.waiting import until

Seen = tuple[str, dict[str, Any]]  # table, columns by name
EACH = pytest.mark.parametrize("make", [MariaDB, MySQL])
NIGHTLY = pytest.mark.nightly("the same test with MariaDB, and the test above")
MARIADB_ON_A_PUSH = pytest.mark.parametrize("make", [MariaDB, pytest.param(MySQL, marks=NIGHTLY)])

CHANGES = (  # statements, and the row that the last one of them inserts
    ("INSERT INTO shop.s VALUES (1, 100, 7)", ("s", {"id": 1, "price": 100, "qty": 7})),
    ("ALTER TABLE shop.s MODIFY price INTEGER AFTER qty", None),
    ("INSERT INTO shop.s VALUES (2, 7, 100)", ("s", {"id": 2, "qty": 7, "price": 100})),
    ("ALTER TABLE shop.s CHANGE qty pieces INTEGER", None),
    ("INSERT INTO shop.s VALUES (3, 7, 100)", ("s", {"id": 3, "pieces": 7, "price": 100})),
    ("INSERT INTO shop.gone VALUES (4, 1, 2)", ("gone", {"id": 4, "a": 1, "b": 2})),
    ("DROP TABLE shop.gone", None),
    ("CREATE TABLE shop.gone (id INTEGER PRIMARY KEY, b INTEGER, a INTEGER)", None),
    ("INSERT INTO shop.gone VALUES (5, 2, 1)", ("gone", {"id": 5, "b": 2, "a": 1})),
    ("RENAME TABLE shop.s TO shop.u, shop.v TO shop.s", None),
    ("INSERT INTO shop.u VALUES (6, 7, 100)", ("u", {"id": 6, "pieces": 7, "price": 100})),
    ("INSERT INTO shop.s VALUES (7, 'x', 'y')", ("s", {"id": 7, "one": "x", "two": "y"})),
    ("ALTER TABLE shop.s MODIFY one VARCHAR(9) AFTER two", None),
    ("INSERT INTO shop.s VALUES (8, 'y', 'x')", ("s", {"id": 8, "two": "y", "one": "x"})),
    ("CREATE TABLE shop.new (id INTEGER PRIMARY KEY, c INTEGER)", None),
    ("INSERT INTO shop.new VALUES (9, 3)", ("new", {"id": 9, "c": 3})),
    ("ALTER TABLE shop.new CHANGE c d INTEGER", None),
    ("INSERT INTO shop.new VALUES (10, 3)", ("new", {"id": 10, "d": 3})),
)
CHANGED: list[Seen] = [row for _, row in CHANGES if row is not None]


@pytest.mark.real
@EACH
def test_a_switch_soon_after_an_alter_needs_no_operator(make: type[SqlServer]) -> None:
    """The stream goes on behind the ALTER, though the standby does not tell which columns the rows before it have."""
    with pair_with_tables(make) as pair, pair.node().start() as node, connected(node, "shop") as client:
        pair.master.execute("INSERT INTO shop.s VALUES (1, 100, 7), (2, 200, 8)")
        assert seen(rows(client, 2)) == [
            ("s", {"id": 1, "price": 100, "qty": 7}),
            ("s", {"id": 2, "price": 200, "qty": 8}),
        ]
        pair.master.execute(
            "ALTER TABLE shop.s ADD COLUMN word VARCHAR(20) AFTER id", "INSERT INTO shop.s VALUES (3, 'c', 300, 9)"
        )
        assert seen(rows(client, 1)) == [("s", {"id": 3, "word": "c", "price": 300, "qty": 9})]
        to_the_standby(pair, node)
        pair.standby.execute("INSERT INTO shop.s VALUES (4, 'd', 400, 10)")
        assert seen(rows(client, 1)) == [("s", {"id": 4, "word": "d", "price": 400, "qty": 10})]
        assert "how=content not_there=0 may_come_again=0" in node.log_file("example")


@pytest.mark.real
@MARIADB_ON_A_PUSH
def test_rows_from_before_many_statements_keep_their_columns_on_the_other_server(make: type[SqlServer]) -> None:
    """They were not acknowledged, so they come from the standby, each with the names of its time."""
    with pair_with_tables(make) as pair, pair.node() as node:
        with connected(node.start(), "shop") as client:
            pair.master.execute("INSERT INTO shop.s VALUES (0, 0, 0)")
            assert rows(client, 1)
            pair.master.execute(*(statement for statement, _ in CHANGES))
            assert unacknowledged(client, len(CHANGED)) == CHANGED
        node.stop()
        to_the_standby(pair, node.start())
        with connected(node, "shop") as client:
            assert seen(rows(client, len(CHANGED))) == CHANGED


@pytest.mark.real
@MARIADB_ON_A_PUSH
def test_rows_from_before_an_alter_that_nobody_read_on_the_old_server(make: type[SqlServer]) -> None:
    """No node runs from the ALTER to the end of the master. The rows before it keep their columns."""
    with pair_with_tables(make) as pair, pair.node() as node:
        with connected(node.start(), "shop") as client:
            pair.master.execute("INSERT INTO shop.s VALUES (0, 0, 0)", "INSERT INTO shop.v VALUES (0, 'x', 'y')")
            assert rows(client, 2)
        node.stop()
        pair.master.execute(*(statement for statement, _ in CHANGES))
        to_the_standby(pair, node.start())
        with connected(node, "shop") as client:
            assert seen(rows(client, len(CHANGED))) == CHANGED


@pytest.mark.real
def test_an_alter_that_never_reached_the_standby_names_no_column_there() -> None:
    """The stream had read it without getting an entry of it, so nothing was missing on the standby."""
    with (
        pair_with_tables(MariaDB) as pair,
        pair.node({"canal.instance.filter.query.ddl": "true"}).start() as node,
        connected(node, "shop") as client,
    ):
        pair.master.execute("INSERT INTO shop.s VALUES (1, 100, 7)")
        assert rows(client, 1)
        pair.caught_up()
        pair.cut_off()
        pair.master.execute("ALTER TABLE shop.s CHANGE price qty INTEGER, CHANGE qty price INTEGER")
        until(lambda: decoded(node) >= pair.master.position()[1], what="the ALTER to be read")
        pair.master.kill()
        pair.standby.execute("INSERT INTO shop.s VALUES (2, 200, 8)")
        time.sleep(1.1)  # statements of one second count as one
        pair.standby.execute("ALTER TABLE shop.s ADD COLUMN word VARCHAR(20)")
        until(lambda: "reads from" in switched(node, "standby"), what="the switch")
        assert seen(rows(client, 1)) == [("s", {"id": 2, "price": 200, "qty": 8})]
        assert "how=content not_there=0" in node.log_file("example")


@contextmanager
def pair_with_tables(make: type[SqlServer]) -> Iterator[Pair]:
    """Yield a pair with some tables. The journals of the standby do not tell how they came about."""
    with paired(make, gtid=False, metadata="MINIMAL") as pair:
        pair.master.execute(
            "CREATE TABLE shop.s (id INTEGER PRIMARY KEY, price INTEGER, qty INTEGER)",
            "CREATE TABLE shop.gone (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER)",
            "CREATE TABLE shop.v (id INTEGER PRIMARY KEY, one VARCHAR(9), two VARCHAR(9))",
        )
        pair.caught_up()
        pair.standby.execute("FLUSH BINARY LOGS")
        until(lambda: only_one_journal(pair.standby), what="the purge of the older journals")
        yield pair


def only_one_journal(server: SqlServer) -> bool:
    """Purge all journals but the newest. Return whether that is done: MariaDB refuses it for a moment."""
    server.execute(f"PURGE BINARY LOGS TO '{server.position()[0]}'")
    return len(server.journals()) == 1


def to_the_standby(pair: Pair, node: Node) -> None:
    """Kill the master, and switch to the standby."""
    pair.caught_up()
    pair.master.kill()
    pair.promote()
    until(lambda: "reads from" in switched(node, "standby"), what="the switch")


def unacknowledged(client: SimpleConnector, count: int) -> list[Seen]:
    """Return that many rows, which the client gets and does not acknowledge."""
    found: list[Seen] = []

    def enough() -> bool:
        nonlocal found
        message = client.get_without_ack(1000, 100)
        found += seen(list(rows_of(message.entries))) if message else []
        return len(found) >= count

    until(enough, what="the rows")
    return found


def decoded(node: Node) -> int:
    """Return the offset up to which the first stream has read its binlog."""
    position = node.status()["destinations"][0]["streams"][0]["decoded"]
    return int(position["offset"]) if position else 0


def seen(found: Sequence[Row]) -> list[Seen]:
    """Return table and after image of the rows. The images are compared without the order of their columns."""
    return [(row.table, dict(row.after)) for row in found if row.after is not None]
