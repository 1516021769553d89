"""The snippets of the README and the tutorial work as they are printed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lab import MariaDB, SqlServer, ZooKeeper
from tests.docs.snippets import ROOT, SHOWN, Reader, Running, snippets
from tests.spark.archive import jvm_options
from tests.waiting import until

README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial"
ACCOUNT = ("sql", "CREATE USER IF NOT EXISTS canal IDENTIFIED BY 'canal';")
INSTALL = ("bash", "python3 -m venv .venv && . .venv/bin/activate")
ADDRESS = ("properties", "canal.instance.master.address = 127.0.0.1:3306")
CHECK = ("bash", "canal-ha check --conf conf")
SERVER = ("bash", "canal-ha server --conf conf")
CLIENT = "canal-ha client --server 127.0.0.1:11111 --destination example"
CONNECTOR = ("python", "from canal_ha.client.connector import SimpleConnector")
ONCE = ("bash", "canal-ha pipeline run shop.toml --once")

KNOWN = {
    README: (
        (
            "bash",
            "bash deploy/playground.sh   # a database, a node and its page, changes as they arrive; until Ctrl-C",
        ),
        ACCOUNT,
        INSTALL,
        ADDRESS,
        CHECK,
        SERVER,
        ("bash", f"{CLIENT} --format json"),
        ("sql", "INSERT INTO shop.orders VALUES (1, 'Grace', FALSE);"),
        CONNECTOR,
    ),
    TUTORIAL / "first-row.md": (
        ACCOUNT,
        INSTALL,
        ADDRESS,
        CHECK,
        SERVER,
        ("bash", CLIENT),
        ("sql", "INSERT INTO shop.orders VALUES (1, 'Grace', FALSE);"),
        ("sql", "INSERT INTO shop.orders VALUES (2, 'Ada', FALSE);"),
        ("bash", "canal-ha status"),
        ("bash", f"{CLIENT} --format json --idle-exit 5"),
        ("bash", rf"{CLIENT} --client-id 1002 --filter 'shop\..*' --format json"),
        ("sql", "INSERT INTO shop.orders VALUES (3, 'Edsger', TRUE);"),
    ),
    TUTORIAL / "python-loop.md": (
        ("python", "import sqlite3"),
        ("sql", "INSERT INTO shop.orders VALUES (10, 'Barbara', FALSE), (11, 'Leslie', FALSE);"),
        ("python", "import sqlite3"),
        CONNECTOR,
        ("sql", "INSERT INTO shop.orders VALUES (12, 'Frances', TRUE);"),
    ),
    TUTORIAL / "fail-over.md": (
        ("bash", "canal-ha server --conf conf --set canal.zkServers=127.0.0.1:2181"),
        ("bash", r"canal-ha server --conf conf --set canal.zkServers=127.0.0.1:2181 --set canal.port=11121 " + "\\"),
        ("bash", "canal-ha status --zk 127.0.0.1:2181"),
        ("bash", "canal-ha client --zk 127.0.0.1:2181 --destination example --format json"),
        ("sql", "INSERT INTO shop.orders VALUES (20, 'Margaret', FALSE);"),
        ("sql", "INSERT INTO shop.orders VALUES (21, 'Radia', FALSE);"),
    ),
    TUTORIAL / "lake-table.md": (
        ("bash", "pip install -e '.[spark]'"),
        ("toml", 'name = "shop"'),
        ("bash", "canal-ha pipeline check shop.toml"),
        ONCE,
        ("sql", "INSERT INTO shop.orders VALUES (30, 'Katherine', FALSE), (31, 'Dorothy', FALSE);"),
        ONCE,
        ("python", "from deltalake import DeltaTable, QueryBuilder"),
    ),
    TUTORIAL / "inside-a-program.md": (
        ("python", "import asyncio"),
        ("sql", "INSERT INTO shop.orders VALUES (40, 'Annie', FALSE);"),
        ("python", "from canal_ha.client.rows import rows_of"),
        ("sql", "INSERT INTO shop.orders VALUES (41, 'Jean', FALSE);"),
        ("sql", "INSERT INTO shop.orders VALUES (42, 'Kathleen', FALSE);"),
        ("python", "import asyncio"),
    ),
    TUTORIAL / "index.md": (),
}
"""The snippets of each page, as a test below runs them: a page or a snippet that is not here fails."""

PAGES = (README, *sorted(TUTORIAL.glob("*.md")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_snippet_is_run_by_a_test(page: Path) -> None:
    """A snippet that is new or has changed must be added to the page's test."""
    found = tuple(each.head for each in snippets(page) if each.language not in SHOWN)
    assert found == KNOWN[page]


def test_the_readme_is_short() -> None:
    """The README has at most 120 lines, so that newcomers read all of it."""
    assert len(README.read_text().splitlines()) <= 120


@pytest.fixture
def server() -> Iterator[SqlServer]:
    """A database server of its own, because the pages say which schema to create."""
    with MariaDB() as running:
        yield running


@pytest.fixture
def orders(server: SqlServer) -> SqlServer:
    """The database as the first lesson leaves it."""
    server.execute(
        "CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer VARCHAR(60), paid BOOLEAN)"
    )
    return server


def serving(reader: Reader, node: Running | None = None) -> Running:
    """Start the node of the next snippet, unless one is given; return it when it runs the destination."""
    node = node or reader.start()
    until(reader.runs, seconds=60.0, what="a running destination")
    return node


def changes(running: Running) -> list[tuple[str, object]]:
    """Return (type, id) of the rows that a client with --format json has printed."""
    rows = [json.loads(line) for line in running.output().splitlines() if line.startswith("{")]
    return [(row["type"], (row["after"] or row["before"])["id"]) for row in rows if row["table"] == "orders"]


@pytest.mark.real
def test_readme(server: SqlServer, tmp_path: Path) -> None:
    """The README leads from nothing to rows, on the command line and in Python."""
    with Reader(README, tmp_path, server) as reader:
        reader.elsewhere("deploy/playground.sh", "deploy/demo.sh")
        reader.sql()
        reader.installed()
        reader.edit("example/instance.properties")
        reader.run()  # check
        serving(reader)
        client = reader.start()
        reader.subscribed(1001)
        reader.sql()
        until(lambda: len(changes(client)) == 2, what="two rows")
        assert changes(client) == [("INSERT", 1), ("UPDATE", 1)]
        program = reader.start("python")
        program.prints("subscribed; now change a row of shop")
        reader.subscribed(1003)
        server.execute("INSERT INTO shop.orders VALUES (2, 'Ada', TRUE)")
        program.prints("INSERT shop orders None {'id': 2, 'customer': 'Ada', 'paid': 1}")


@pytest.mark.real
def test_first_row(server: SqlServer, tmp_path: Path) -> None:
    """A cursor keeps a client's position while it is away. Another client id begins at the newest position."""
    with Reader(TUTORIAL / "first-row.md", tmp_path, server) as reader:
        reader.sql()
        reader.installed()
        reader.edit("example/instance.properties")
        assert "ok" in reader.run()
        serving(reader)
        client = reader.start()
        reader.subscribed(1001)
        reader.sql()
        client.prints("name[shop,orders] , eventType : UPDATE", "paid : 1    type=tinyint(1)    update=true")
        client.interrupt()
        reader.sql()
        assert "1001" in reader.run()
        rows = [json.loads(line) for line in reader.run().splitlines()]
        assert [row["type"] for row in rows if row["table"] == "orders"] == ["INSERT", "DELETE"]
        other = reader.start()
        reader.subscribed(1002)
        reader.sql()
        until(lambda: bool(changes(other)), what="a row")
        assert changes(other) == [("INSERT", 3)]


@pytest.mark.real
def test_python_loop(orders: SqlServer, tmp_path: Path) -> None:
    """The copy in SQLite has the table's rows. Arrow batches have typed columns."""
    with Reader(TUTORIAL / "python-loop.md", tmp_path, orders) as reader:
        serving(reader, reader.first_lesson())
        program = reader.start("python")
        program.prints("subscribed")
        reader.sql()
        until(lambda: copied(tmp_path) == [(10, "Barbara", 1)], what="the copy of the row")
        shown = "[(10, 'Barbara', 1)]"
        assert reader.run("python").strip() == shown
        assert shown in (TUTORIAL / "python-loop.md").read_text()
        program.interrupt()
        arrow = reader.start("python")
        arrow.prints("subscribed")
        reader.sql()
        arrow.prints("shop orders [{'id': 12, 'customer': 'Frances', 'paid': 1, '_op': 'insert'")


@pytest.mark.real
def test_fail_over(orders: SqlServer, tmp_path: Path) -> None:
    """When the node that runs the destination is killed, the client continues with the other one.

    ZooKeeper is the reader's own: killed nodes of another cluster there would show in its status.
    """
    page = TUTORIAL / "fail-over.md"
    with ZooKeeper() as zookeeper, Reader(page, tmp_path, orders, zookeeper.hosts) as reader:
        reader.follow_database()
        first, second = reader.start(), reader.start()
        until(lambda: reader.runs() or reader.runs(port="8099"), seconds=60.0, what="a running destination")
        until(lambda: "running.standby" in first.output() + second.output(), seconds=60.0, what="a stand-by")
        assert "example" in reader.run()
        client = reader.start()
        owner, port, other = (first, "8089", "8099") if reader.runs() else (second, "8099", "8089")
        reader.subscribed(1001, port=port)
        reader.sql()
        until(lambda: ("INSERT", 20) in changes(client), what="the first row")
        owner.kill()
        reader.sql()
        until(lambda: ("INSERT", 21) in changes(client), seconds=60.0, what="the row behind the fail-over")
        client.prints("client.destination_moved")
        assert reader.runs(port=other)


@pytest.mark.spark
def test_lake_table(orders: SqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Delta table has the current rows, and the page shows what its last snippet prints."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", jvm_options())  # each of the commands starts Spark
    page = TUTORIAL / "lake-table.md"
    with Reader(page, tmp_path, orders) as reader:
        serving(reader, reader.first_lesson())
        reader.installed()
        reader.save("shop.toml", "toml")
        assert "FAIL" not in reader.run()
        reader.run()
        reader.sql()
        reader.run()
        assert reader.run("python").strip() == snippets(page)[-1].text.strip()


@pytest.mark.real
def test_inside_a_program(orders: SqlServer, tmp_path: Path) -> None:
    """Rows arrive on an event loop, and in a program with a node inside; the next program continues behind it."""
    page = TUTORIAL / "inside-a-program.md"
    with Reader(page, tmp_path, orders) as reader:
        serving(reader, reader.first_lesson())
        client = reader.start("python")
        client.prints("subscribed")
        reader.sql()
        client.prints("INSERT {'id': 40, 'customer': 'Annie', 'paid': 0}")
        client.interrupt()
        embedded = reader.start("python")
        embedded.prints("subscribed")
        reader.sql()
        embedded.prints("INSERT {'id': 41, 'customer': 'Jean', 'paid': 0}")
        embedded.interrupt()
        reader.sql()
        again = reader.start("python")
        shown = "INSERT {'id': 42, 'customer': 'Kathleen', 'paid': 0}"
        again.prints(shown)
        assert shown in page.read_text()
        assert "'id': 41" not in again.output()


def copied(directory: Path) -> list[tuple[object, ...]]:
    """Return the rows of the copy in SQLite."""
    with closing(sqlite3.connect(directory / "orders.db")) as copy:
        return copy.execute("SELECT * FROM orders").fetchall()
