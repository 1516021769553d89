"""`canal-ha pipeline` with a YAML file on real servers: what plan and status say before, while and after it runs."""

from __future__ import annotations

import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from canal_ha.cli.main import group
from canal_ha.pipeline.description import load
from lab import MariaDB, MySQL, Node, SqlServer, ZooKeeper, follow
from tests.pipeline.driver import Pipeline
from tests.pipeline.receiver import GOOD, Answer, Receiver
from tests.waiting import until

pytestmark = pytest.mark.real

FILE = """\
name: shop
engine: embedded
state: {state}
source: {{{source}, destination: {database}, clientId: 2002, snapshot: {database}.users}}
tables: {database}.users
transforms:
- drop: {{columns: [password]}}
- mask: {{columns: [phone]}}
- hash: {{columns: [mail], key: k}}
- rename: {{columns: {{no: number}}}}
- cast: {{columns: {{price: varchar(20)}}}}
- route: {{match: '.*\\.(.*)', to: 'lake.\\1_copy'}}
target: {{type: http, url: "{url}"}}
"""


def pipeline(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(group, ["pipeline", *arguments], catch_exceptions=False)


def received(receiver: Receiver) -> list[dict[str, Any]]:
    """Return the rows that the receiver has."""
    return [json.loads(line) for request in receiver.stored for line in request.lines]


def users(server: SqlServer, database: str) -> str:
    """Create a table with a row and return its name."""
    server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.users (no INT PRIMARY KEY, mail VARCHAR(60), phone VARCHAR(20), password TEXT,"
        " price DECIMAL(10,2))",
        f"INSERT INTO {database}.users VALUES (1, 'ada@x', '555', 'hunter2', 1.50)",
    )
    return f"{database}.users"


def test_a_file_runs_with_its_transforms(source_server: SqlServer, database: str, tmp_path: Path) -> None:
    """Existing rows, changes and statements arrive under the new names, and nothing that is hidden."""
    name = users(source_server, database)
    with Receiver() as receiver, Node({database: follow(source_server)}) as node:
        file = tmp_path / "shop.yaml"
        servers = f"servers: '{node.address}'"
        file.write_text(FILE.format(state=tmp_path / "state", source=servers, database=database, url=receiver.url))
        before = pipeline("plan", str(file))
        assert before.exit_code == 0, before.output
        assert f"table {name} -> lake.users_copy" in before.output
        assert f"{database}: begins with the existing rows of {name}, then their changes" in before.output
        first = pipeline("run", "--once", str(file))
        assert first.exit_code == 0, first.output
        assert first.output.splitlines()[0] == "shop: engine: embedded (engine in the file)"
        source_server.execute(
            f"UPDATE {name} SET phone = NULL, price = 2 WHERE no = 1",
            f"ALTER TABLE {name} ADD extra INT DEFAULT 7",
            f"DELETE FROM {name}",
        )
        assert pipeline("run", "--once", str(file)).exit_code == 0
        shown = pipeline("status", str(file))
        assert shown.exit_code == 0, shown.output
        assert f"shop: {database}: commit " in shown.output
        assert "end of the source's binlog: " in shown.output
        after = pipeline("plan", str(file))
        assert f"{database}: begins after commit " in after.output
        checked = pipeline("check", str(file))
        assert checked.exit_code == 0, checked.output
        assert "hunter2" not in "".join(request.body.decode() for request in receiver.requests)
        rows = received(receiver)
    assert {(row["schema"], row["table"]) for row in rows} == {("lake", "users_copy")}
    images = [(row["type"], row["before"], row["after"], row["sql"]) for row in rows]
    inserted, updated, altered, deleted = images
    mail = inserted[2]["mail"]
    one = {"number": 1, "mail": mail, "phone": "***", "price": "1.50"}
    two = {"number": 1, "mail": mail, "phone": None, "price": "2.0"}  # canal's text of 2.00
    assert len(mail) == 64
    assert inserted[:3] == ("INSERT", None, one)
    assert updated[:3] == ("UPDATE", one, two)
    assert (altered[0], altered[3]) == ("ALTER", "ALTER TABLE `lake`.`users_copy` ADD extra INT DEFAULT 7")
    assert deleted[:3] == ("DELETE", {**two, "extra": 7}, None)


def test_a_plan_shows_the_cursor_and_who_else_uses_the_client_id(
    source_server: SqlServer, zookeeper: ZooKeeper, database: str, tmp_path: Path
) -> None:
    """With ZooKeeper, a second pipeline with the same client id is found before it runs."""
    users(source_server, database)
    with Receiver() as receiver, Node({database: follow(source_server)}, zk_servers=zookeeper.hosts):
        files = []
        for number in (1, 2):
            file = tmp_path / f"{number}.yaml"
            servers = f"zkServers: '{zookeeper.hosts}'"
            state = tmp_path / str(number)
            file.write_text(FILE.format(state=state, source=servers, database=database, url=receiver.url))
            files.append(str(file))
        assert pipeline("run", "--once", files[0]).exit_code == 0
        assert pipeline("plan", files[0]).exit_code == 0
        until(lambda: pipeline("plan", files[1]).exit_code == 1, what="the node writes the cursor")
        assert "the client id is in use by something else" in pipeline("plan", files[1]).output


def test_a_mirror_of_transformed_tables_equals_its_source(mariadb: MariaDB, database: str, tmp_path: Path) -> None:
    """The copy is found by its hashed key, follows statements under its new name, and hides its columns."""
    name = users(mariadb, database)
    with Node({database: follow(mariadb)}) as node:
        file = tmp_path / "shop.yaml"
        file.write_text(
            f"name: shop\nengine: embedded\nstate: {tmp_path}/state\ntables: {name}\n"
            f"source: {{servers: '{node.address}', destination: {database}, snapshot: initial}}\n"
            "transforms:\n- hash: {columns: no, key: k}\n- drop: {columns: [password, phone]}\n"
            "- rename: {columns: {mail: address}}\n- cast: {columns: {price: double}}\n"
            "- route: {match: '.*[.](.*)', to: 'lake.\\1'}\n"
            f"target: {{type: delta, path: {tmp_path}/lake}}\n"
        )

        def copied() -> list[dict[str, Any]]:
            done = pipeline("run", "--once", str(file))
            assert done.exit_code == 0, done.output
            rows = DeltaTable(tmp_path / "lake" / "lake" / "users").to_pyarrow_table().to_pylist()
            return sorted(rows, key=lambda row: str(row["address"]))

        def key(number: int) -> str:
            return hmac.new(b"k", str(number).encode(), "sha256").hexdigest()

        assert copied() == [{"no": key(1), "address": "ada@x", "price": 1.5}]
        mariadb.execute(
            f"INSERT INTO {name} VALUES (2, 'b@x', '1', 'hunter2', 2), (3, 'c@x', '2', 'hunter2', NULL)",
            f"UPDATE {name} SET no = 7 WHERE no = 1",
            f"DELETE FROM {name} WHERE no = 2",
            f"ALTER TABLE {name} ADD extra INT DEFAULT 5, DROP phone",
            f"UPDATE {name} SET extra = 6 WHERE no = 3",
        )
        assert copied() == [
            {"no": key(7), "address": "ada@x", "price": 1.5, "extra": 5},
            {"no": key(3), "address": "c@x", "price": None, "extra": 6},
        ]
        mariadb.execute(f"ALTER TABLE {name} ADD more INT DEFAULT 9", f"UPDATE {name} SET price = 4 WHERE no = 3")
        assert copied() == [
            {"no": key(7), "address": "ada@x", "price": 1.5, "extra": 5, "more": 9},
            {"no": key(3), "address": "c@x", "price": 4.0, "extra": 6, "more": 9},
        ]
        mariadb.execute(f"TRUNCATE {name}", f"INSERT INTO {name} VALUES (1, 'd@x', 'hunter2', 1, 1, 1)")
        assert copied() == [{"no": key(1), "address": "d@x", "price": 1.0, "extra": 1, "more": 1}]
    assert b"hunter2" not in b"".join(path.read_bytes() for path in (tmp_path / "lake").rglob("*") if path.is_file())


def test_status_tells_that_the_target_fails(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """And exits with 1 until the target answers again."""
    users(mysql, database)
    with Receiver() as receiver, Node({database: follow(mysql)}) as node:
        receiver.otherwise = lambda: Answer(status=503)
        file = tmp_path / "shop.yaml"
        servers = f"servers: '{node.address}'"
        text = FILE.format(state=tmp_path / "state", source=servers, database=database, url=receiver.url)
        file.write_text(text.replace("type: http,", "type: http, retryForS: 0,"))
        with Pipeline(load(str(file))) as process:
            until(lambda: pipeline("status", str(file)).exit_code == 1, what="the status has a problem")
            assert f"{database} waits: its target: " in pipeline("status", str(file)).output
            receiver.otherwise = lambda: GOOD
            until(lambda: pipeline("status", str(file)).exit_code == 0, what="the status is good again")
            process.process.terminate()
            assert process.wait() == 0
        assert "shop: ended at " in pipeline("status", str(file)).output
