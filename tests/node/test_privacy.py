"""Protected columns of a real source: the clear values occur in no byte that leaves the node."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import Row
from canal_ha.errors import ServerRefused
from lab import MySQL, Node, SqlServer, follow
from lab.ports import LOOPBACK
from tests.node.following import column, following, read
from tests.node.recording_proxy import RecordingProxy
from tests.node.test_accounts import PASSWORD, account, connector
from tests.waiting import until

pytestmark = pytest.mark.real

KEY = "0123456789abcdef-of-the-tests"
EMAIL, PHONE, SSN, SALARY, DOCUMENT = "alice-7f3a@x", "phone-7f3a", "ssn-7f3a", "918273645", "secret-7f3a"
CLEAR = tuple(text.encode() for text in (EMAIL, PHONE, SSN, SALARY, DOCUMENT))


def hashed(text: str) -> str:
    return hmac.digest(KEY.encode(), text.encode(), "sha256").hex()


def rules(database: str) -> dict[str, str]:
    return {
        "canal.instance.privacy.key": "${file:../privacy.key}",
        "canal.instance.privacy.hash": rf"{database}\\..*:email/salary/doc",
        "canal.instance.privacy.mask": rf"{database}\\.users:phone",
        "canal.instance.privacy.drop": rf"{database}\\.users:ssn",
    }


def write_key(node: Node) -> Node:
    (node.conf / "privacy.key").write_text(KEY + "\n")
    return node


@pytest.fixture
def tables(source_server: SqlServer, database: str) -> SqlServer:
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.users (id int PRIMARY KEY, email varchar(60) CHARACTER SET latin1, phone varchar(60),"
        " ssn varchar(60), salary bigint, doc json, open varchar(20))",
        f"CREATE TABLE {database}.mails (email varchar(60) CHARACTER SET utf8mb4 PRIMARY KEY, note text)",
    )
    return source_server


def change_rows(server: SqlServer, database: str) -> int:
    """Write the clear values in every way that a statement can; return how many rows the binlog has of it."""
    users, mails = f"{database}.users", f"{database}.mails"
    document = json.dumps({"a": DOCUMENT, "b": "x" * 200})
    says = (
        "SET SESSION binlog_rows_query_log_events = ON"
        if isinstance(server, MySQL)
        else "SET SESSION binlog_annotate_row_events = ON"
    )
    partly = ["SET SESSION binlog_row_value_options = PARTIAL_JSON"] if isinstance(server, MySQL) else []
    server.execute(
        says,
        f"INSERT INTO {users} VALUES (1, '{EMAIL}', '{PHONE}', '{SSN}', {SALARY}, '{document}', 'a'),"
        " (2, NULL, NULL, NULL, NULL, NULL, 'b')",
        f"INSERT INTO {mails} VALUES ('{EMAIL}', 'n')",
        f"UPDATE {users} SET phone = '{PHONE}2', open = 'c' WHERE id = 1",
        *partly,
        f"UPDATE {users} SET doc = JSON_SET(doc, '$.a', '{DOCUMENT}2') WHERE id = 1",
        f"DELETE FROM {users} WHERE email = '{EMAIL}'",
        "SET SESSION binlog_format = STATEMENT",
        f"INSERT INTO {mails} VALUES ('{EMAIL}2', '{SSN}')",
        f"CREATE USER '{database}'@'localhost' IDENTIFIED BY '{SSN}'",
        f"DROP USER '{database}'@'localhost'",
        f"ALTER TABLE {mails} ADD CONSTRAINT c CHECK (email <> '{SSN}')",
        f"ALTER TABLE {users} MODIFY email varchar(70) CHARACTER SET latin1 DEFAULT '{EMAIL}'",
        f"ALTER TABLE {mails} ADD COLUMN more int DEFAULT 5",
    )
    return 6


def check_rows(rows: list[Row]) -> None:
    first, second, mail, phone, document, deleted = [row for row in rows if row.type in ("INSERT", "UPDATE", "DELETE")]
    assert first.after is not None
    assert second.after is not None
    assert mail.after is not None
    assert {name: value for name, value in first.after.items() if name != "doc"} == {
        "id": 1, "email": hashed(EMAIL), "phone": "***", "salary": hashed(SALARY), "open": "a",
    }  # fmt: skip
    assert second.after == {"id": 2, "email": None, "phone": None, "salary": None, "doc": None, "open": "b"}
    assert mail.after == {"email": hashed(EMAIL), "note": "n"}  # joins with users, whose charset is another one
    assert phone.after is not None
    assert phone.after["phone"] == "***"
    assert document.before is not None
    assert document.after is not None
    assert document.before["doc"] == first.after["doc"] != document.after["doc"]
    assert deleted.before is not None
    assert deleted.before["doc"] == document.after["doc"]


def assert_hidden(*texts: bytes) -> None:
    for text in texts:
        assert [clear for clear in CLEAR if clear in text] == []


def files_below(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


def test_no_clear_value_leaves_the_node(tables: SqlServer, database: str) -> None:
    """Not in rows, statements, private reads, Arrow's bytes, the log, the status; a restart changes no hash."""
    settings = follow(tables, {"canal.instance.filter.regex": rf"{database}\\..*", **rules(database)})
    node = write_key(Node({"example": settings}))
    start = "{}:{}".format(*tables.position())
    with node, RecordingProxy(node.port) as proxy:
        with (
            SimpleConnector(LOOPBACK, proxy.port, "example", 1001) as client,
            SimpleConnector(LOOPBACK, proxy.port, "example", 1002) as arrow,
        ):
            client.subscribe()
            arrow.subscribe()
            count = change_rows(tables, database)
            rows = read(client, count + 2)
            check_rows(rows)
            assert [(row.type, row.sql) for row in rows[count:]] == [
                ("ALTER", ""),
                ("ALTER", f"ALTER TABLE {database}.mails ADD COLUMN more int DEFAULT 5"),
            ]
            seen: list[Any] = []

            def more() -> bool:
                message = arrow.get_arrow(1000, 200)
                seen.extend(row for batch in message.batches for row in batch.rows.to_pylist())
                arrow.ack(message.id)
                return len(seen) >= count

            until(more, what="rows as Arrow")
            assert hashed(EMAIL) in str(seen)
        node.restart()
        with SimpleConnector(LOOPBACK, proxy.port, "example", 1001, rollback_on_connect=False) as client:
            client.read_from(start)
            check_rows(read(client, count + 2))
        status = json.dumps(node.status()).encode()
    assert len(proxy.sent) > 5000
    assert_hidden(bytes(proxy.sent), status, files_below(node.directory / "logs"))
    assert KEY.encode() not in status + files_below(node.directory / "logs")


@pytest.fixture
def node(mysql: MySQL, database: str) -> Iterator[Node]:
    """A node whose accounts see more and less of one table; the destination hashes the email."""
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.users (id int PRIMARY KEY, email varchar(60), phone varchar(60))",
    )
    settings = follow(mysql, {**rules(database), "canal.instance.privacy.mask": ""})
    made = write_key(
        Node({"example": settings}, properties={"canal.accounts.file": "../conf/a.toml"}, login=("boss", PASSWORD))
    )
    less = rf"{{ mask = '{database}\.users:email', drop = '{database}\.users:phone' }}"
    (made.conf / "a.toml").write_text(
        account("wide", roles='["read"]', destinations='["*"]')
        + account("narrow", roles='["read"]', destinations='["*"]', privacy=less)
        + account("boss", roles='["read", "admin"]', destinations='["*"]')
    )
    with made:
        yield made


def test_an_account_sees_less_than_another_one(mysql: MySQL, node: Node, database: str) -> None:
    """On streams of their own, on one client id after another, and in private reads."""
    start = "{}:{}".format(*mysql.position())
    with connector(node, "wide") as wide, connector(node, "narrow", client_id=1002) as narrow:
        wide.subscribe(rf"{database}\..*")
        narrow.subscribe(rf"{database}\..*")
        mysql.execute(f"INSERT INTO {database}.users VALUES (1, '{EMAIL}', '{PHONE}')")
        assert [row.after for row in read(wide, 1)] == [{"id": 1, "email": hashed(EMAIL), "phone": PHONE}]
        assert [row.after for row in read(narrow, 1)] == [{"id": 1, "email": "***"}]
        mysql.execute(f"INSERT INTO {database}.users VALUES (2, '{EMAIL}', '{PHONE}')")
        message = wide.get_without_ack(10, 2000)
        assert message.id != -1
    with connector(node, "narrow") as narrow, pytest.raises(ServerRefused, match="should subscribe first"):
        narrow.get_without_ack(1, 0)  # decoded for the wide account
    with connector(node, "narrow") as narrow:
        narrow.subscribe(rf"{database}\..*")
        assert [row.after for row in read(narrow, 1)] == [{"id": 2, "email": "***"}]
    for name, expected in (("wide", hashed(EMAIL)), ("narrow", "***")):
        with SimpleConnector(LOOPBACK, node.port, "example", 1009, name, PASSWORD, rollback_on_connect=False) as client:
            client.read_from(start, filter=rf"{database}\..*")
            assert column(read(client, 2), "email") == [expected] * 2


def test_a_rule_added_to_an_account_counts_at_once(mysql: MySQL, node: Node, database: str) -> None:
    """A connection that is logged in has to subscribe again before it gets anything more."""
    with connector(node, "wide") as wide:
        wide.subscribe(rf"{database}\..*")
        file = node.conf / "a.toml"
        file.write_text(
            account("wide", roles='["read"]', destinations='["*"]', privacy=rf"{{ drop = '{database}\.users:phone' }}")
        )

        def refused() -> bool:
            try:
                wide.get(1, 100)
            except ServerRefused:
                return True
            return False

        until(refused, what="the new rule")
    mysql.execute(f"INSERT INTO {database}.users VALUES (1, '{EMAIL}', '{PHONE}')")
    with connector(node, "wide") as wide:
        wide.subscribe(rf"{database}\..*")
        assert [row.after for row in read(wide, 1)] == [{"id": 1, "email": hashed(EMAIL)}]


def test_a_renamed_column_stays_hidden(tables: SqlServer, database: str) -> None:
    """The stream stops at the statement, names both columns, and goes on when a rule has the new name."""
    settings = follow(tables, {"canal.instance.filter.regex": rf"{database}\\..*", **rules(database)})
    scan = {"canal.auto.scan": "true", "canal.auto.scan.interval": "1"}
    node = write_key(Node({"example": settings}, properties=scan))
    with node, RecordingProxy(node.port) as proxy:
        with SimpleConnector(LOOPBACK, proxy.port, "example", 1001) as client:
            client.subscribe()
            tables.execute(
                f"INSERT INTO {database}.mails VALUES ('{EMAIL}', 'n')",
                f"ALTER TABLE {database}.mails CHANGE email mail varchar(60)",
                f"INSERT INTO {database}.mails VALUES ('{EMAIL}2', 'n')",
            )
            assert column(read(client, 1), "email") == [hashed(EMAIL)]
            with pytest.raises(ServerRefused, match=r"protected column mails\.email into mails\.mail"):
                read(client, 1)
        file = node.conf / "example" / "instance.properties"
        file.write_text(file.read_text().replace("email/salary", "email/mail/salary"))

        def renamed() -> list[Row] | None:
            try:
                with following(node) as client:
                    return [row for row in read(client, 1) if row.after and "mail" in row.after] or None
            except (ServerRefused, OSError):
                return None

        assert column(until(renamed, what="the row behind the statement"), "mail") == [hashed(EMAIL + "2")]
    assert_hidden(bytes(proxy.sent), files_below(node.directory / "logs"))
