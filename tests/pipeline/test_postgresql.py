"""The target for PostgreSQL on a real server: what it writes, follows and refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from canal_ha.errors import SinkRefused, TargetUnavailable
from canal_ha.pipeline.description import Description, TargetDescription
from canal_ha.pipeline.postgresql_copies import text_of
from canal_ha.pipeline.targets.postgresql import PostgreSQLTarget, open_target
from lab import Node, SqlServer, follow
from lab.certificates import Authority
from lab.postgresql import OWNER, PostgreSQL
from tests.pipeline.column_values import literals, selected, types
from tests.pipeline.sourced import Sourced

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSQL]:
    """Yield one server for the module."""
    with PostgreSQL() as server:
        yield server


@pytest.fixture
def source(source_server: SqlServer, database: str) -> Iterator[Sourced]:
    """Yield a source database of each server."""
    with Node({"example": follow(source_server)}) as node, Sourced(source_server, database, node) as source:
        yield source


def described(
    server: PostgreSQL, database: str, mode: Any = "mirror", evolve: Any = "evolve", **options: Any
) -> Description:
    """Return a pipeline that copies a database."""
    given = {"address": server.address, "database": "postgres", "user": OWNER, "password": OWNER, **options}
    given.setdefault("stateSchema", f"state_{database}")
    target = TargetDescription("postgresql", mode, evolve, given)
    return Description("p.yaml", "p", "embedded", "state", (f"{database}.*",), {}, {}, target)


def target_of(server: PostgreSQL, database: str, **more: Any) -> PostgreSQLTarget:
    """Return a target that copies a database."""
    return open_target(described(server, database, **more))


def stored(value: Any, mysql_type: str) -> Any:
    """Return a value of the source as the copy has it."""
    name = mysql_type.partition("(")[0]
    if value is None or (name in ("date", "datetime", "timestamp") and isinstance(value, str)):
        return None  # a zero date
    if name == "bit":
        number = int.from_bytes(value, "big")
        return bool(number) if mysql_type == "bit(1)" else number
    if name == "timestamp":
        assert isinstance(value, datetime)
        return value.replace(tzinfo=UTC)
    if name == "json":
        return json.loads(value)
    return value


def test_every_type_arrives(source: Sourced, postgresql: PostgreSQL) -> None:
    """Each value of each type of column is in the copy, NULL and extremes too."""
    kinds = types(source.server.flavor)
    columns = ", ".join(f"`c{at}` {kind} NULL" for at, kind in enumerate(kinds))
    source.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns}) CHARSET utf8mb4")
    texts = [literals(kind) for kind in kinds]
    for number in range(max(map(len, texts))):
        row = ", ".join(each[number] if number < len(each) else "NULL" for each in texts)
        source.execute(f"INSERT INTO t VALUES ({number}, {row})")
    target = target_of(postgresql, source.database)
    assert "15" in target.check()
    target.commit(source.first())
    target.commit(source.portion())
    before = source.query(f"SELECT {selected(kinds)} FROM t ORDER BY id")
    after = postgresql.query(f"SELECT * FROM {source.database}.t ORDER BY id")
    of = {f"c{at}": kind for at, kind in enumerate(kinds)}
    expected = [{name: stored(value, of.get(name, "int")) for name, value in row.items()} for row in before]
    for at, kind in enumerate(kinds):
        assert [row[f"c{at}"] for row in after] == [row[f"c{at}"] for row in expected], kind
    target.close()


def test_a_nul_character_is_refused_or_replaced(source: Sourced, postgresql: PostgreSQL) -> None:
    """The error names table, column and what to do."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, name TEXT)", "INSERT INTO t VALUES (1, 'a\\0b')")
    portion = source.portion()
    target = target_of(postgresql, source.database)
    target.commit(source.first())
    with pytest.raises(SinkRefused, match=r"column 'name' of \w+\.t has the character U\+0000.*nulCharacters"):
        target.commit(portion)
    target_of(postgresql, source.database, nulCharacters="replace").commit(portion)
    assert postgresql.query(f"SELECT name FROM {source.database}.t") == [{"name": "a\ufffdb"}]


@pytest.mark.parametrize("kind", ["jsonb", "json", "text"])
def test_documents_with_a_nul_character_need_another_type(source: Sourced, postgresql: PostgreSQL, kind: str) -> None:
    """jsonb refuses the escape, and the error names table and column; a change of the option converts the column."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, j JSON)", """INSERT INTO t VALUES (1, '{"b": 1, "a": 2}')""")
    target = target_of(postgresql, source.database, json="jsonb")
    target.commit(source.first())
    target.commit(source.portion())
    source.execute(r"""INSERT INTO t VALUES (2, '"\\u0000"')""")
    portion = source.portion()
    if kind == "jsonb":
        with pytest.raises(SinkRefused, match=rf"{source.database}\.t: .*u0000.*column j"):
            target.commit(portion)
        return
    other = target_of(postgresql, source.database, json=kind)
    if kind == "json":
        with pytest.raises(SinkRefused, match="column 'j'"):
            other.commit(portion)
        return
    other.commit(portion)
    assert [row["j"] for row in postgresql.query(f"SELECT j FROM {source.database}.t ORDER BY id")][1] == r'"\u0000"'


def test_a_type_that_only_the_source_can_convert_is_refused(source: Sourced, postgresql: PostgreSQL) -> None:
    """The binlog has no values of an ALTER TABLE; an empty copy takes any type."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, '7')")
    target = target_of(postgresql, source.database)
    target.commit(source.first())
    target.commit(source.portion())
    source.execute("ALTER TABLE t MODIFY v INT", "INSERT INTO t VALUES (2, 8)")
    with pytest.raises(SinkRefused, match=r"column 'v' of \w+\.t is of type INT now.*snapshot"):
        target.commit(source.portion())
    source.progress = target.progress(source.destination) or source.progress
    source.execute("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (3, 9)")
    target.commit(source.portion())
    assert postgresql.query(f"SELECT * FROM {source.database}.t") == [{"id": 3, "v": 9}]


def test_what_passes_can_be_tried_again(source: Sourced, database: str) -> None:
    """A server that is down, starts or is read-only; then the same portion is written once."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    portion = source.portion()
    with PostgreSQL() as server:
        target = target_of(server, database)
        target.commit(source.first())
        server.kill()
        for _ in range(2):
            with pytest.raises(TargetUnavailable, match="postgresql at"):
                target.commit(portion)
        with pytest.raises(TargetUnavailable):
            target.progress(source.destination)
        with pytest.raises(TargetUnavailable, match="connection"):
            target.check()
        server.start()
        target.progress(source.destination)
        server.execute("ALTER ROLE owner SET default_transaction_read_only = on")
        target.close()  # new sessions have the setting
        with pytest.raises(TargetUnavailable, match="read-only"):
            target.commit(portion)
        server.execute("SET default_transaction_read_only = off", "ALTER ROLE owner RESET ALL")
        target.commit(portion)
        target.commit(portion)
        assert server.query(f"SELECT * FROM {database}.t") == [{"id": 1}]


def test_a_server_must_have_a_certificate_of_the_given_authority(tmp_path: Path, database: str) -> None:
    """With sslCa alone, the certificate is checked; the password comes from a file."""
    authority, stranger = Authority(tmp_path, "own"), Authority(tmp_path, "stranger")
    with PostgreSQL(certificate=authority.sign("server")) as server:
        (tmp_path / "password").write_text(f"{OWNER}\n")
        options = {"password": "", "passwordFile": str(tmp_path / "password")}
        assert "PostgreSQL" in target_of(server, database, sslCa=str(authority.file), **options).check()
        with pytest.raises(SinkRefused, match="certificate verify failed"):
            target_of(server, database, sslCa=str(stranger.file), **options).check()
        with pytest.raises(SinkRefused, match="password authentication failed"):
            target_of(server, database, password="wrong").check()
        with pytest.raises(SinkRefused, match="cannot be read"):
            target_of(server, database, passwordFile=str(tmp_path / "missing")).check()


def test_an_account_needs_few_rights(source: Sourced, postgresql: PostgreSQL, database: str) -> None:
    """CREATE on the database, or two schemas of its own."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    portion, (able, owner) = source.portion(), (f"able_{database}", f"owner_{database}")
    postgresql.execute(
        *(f"CREATE ROLE {role} LOGIN PASSWORD 'w'" for role in (able, owner)),
        f"GRANT CREATE ON DATABASE postgres TO {able}",
        *(f"CREATE SCHEMA {schema} AUTHORIZATION {owner}" for schema in (f"state_{owner}", f"copy_{owner}")),
    )
    options = {"schema": f"copy_{owner}", "stateSchema": f"state_{owner}", "schemas": [f"copy_{owner}"]}
    for user, own in ((able, {}), (owner, options)):
        target = target_of(postgresql, database, user=user, password="w", **own)
        target.commit(source.first())
        target.commit(portion)
        assert postgresql.query(f"SELECT * FROM {own.get('schema', database)}.t") == [{"id": 1}]
    with pytest.raises(SinkRefused, match="permission denied"):
        target_of(postgresql, database, user=owner, password="w").check()


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("INSERT INTO secrets VALUES (1, 'geheim'), (1, 'x')", "constraint secrets_pkey"),
        ("INSERT INTO secrets VALUES (2, NULL)", "column name"),
        ("INSERT INTO secrets VALUES ('geheim', 'x')", "integer"),
    ],
)
def test_errors_of_the_server_show_no_values(postgresql: PostgreSQL, statement: str, says: str) -> None:
    """They name table, column and constraint."""
    with postgresql.connect() as connection:
        connection.execute("CREATE TEMPORARY TABLE secrets (id integer PRIMARY KEY, name text NOT NULL)")
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(statement)
    assert says in text_of(caught.value)
    assert "geheim" not in text_of(caught.value)
    assert "Key (" not in text_of(caught.value)


def test_an_error_of_a_copy_names_line_and_column_without_the_value(postgresql: PostgreSQL) -> None:
    """The server's context has the value behind them."""
    with postgresql.connect() as connection:
        connection.execute("CREATE TEMPORARY TABLE secrets (id integer)")
        with pytest.raises(psycopg.Error) as caught, connection.cursor().copy("COPY secrets FROM STDIN") as copy:
            copy.write_row(["geheim"])
    assert text_of(caught.value).endswith("COPY secrets, line 1, column id")
    assert "geheim" not in text_of(caught.value)
