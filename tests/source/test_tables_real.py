"""Definitions of tables on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from canal_ha.errors import SourceRefused, SourceUnavailable
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.connection.tables import Tables
from lab import MySQL, SqlServer
from tests.source.reading import config_of

pytestmark = pytest.mark.real


def test_definitions(source_server: SqlServer, database: str) -> None:
    """fetch() returns SHOW CREATE TABLE for any name, and None for a view, a missing table or a missing privilege."""
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.`o``dd ü` (id INT PRIMARY KEY, `größe` ENUM('é', '漢'))",
        f"CREATE VIEW {database}.v AS SELECT 1",
    )
    tables = Tables(config_of(source_server))
    text = tables.fetch(database, "o`dd ü")
    assert text is not None
    assert text.startswith("CREATE TABLE `o``dd ü` (")
    assert "enum('é','漢')" in text
    assert tables.fetch(database, "v") is None
    assert tables.fetch(database, "nothing") is None
    assert tables.fetch("nowhere", "nothing") is None
    user = f"u{database}"
    source_server.execute(f"CREATE USER '{user}'@'%' IDENTIFIED BY 'p'")
    assert Tables(config_of(source_server, user=user, password="p")).fetch(database, "o`dd ü") is None
    tables.close()
    assert tables.fetch(database, "o`dd ü") == text
    tables.close()


def test_quoting_does_not_depend_on_the_server(source_server: SqlServer, database: str) -> None:
    """Global settings that change the quotes of SHOW CREATE TABLE have no effect."""
    source_server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT)")
    before = source_server.query("SELECT @@GLOBAL.sql_mode AS mode")[0]["mode"]
    source_server.execute("SET GLOBAL sql_mode = 'ANSI_QUOTES', GLOBAL sql_quote_show_create = 0")
    try:
        text = Tables(config_of(source_server)).fetch(database, "t")
    finally:
        source_server.execute(f"SET GLOBAL sql_mode = '{before}', GLOBAL sql_quote_show_create = 1")
    assert text is not None
    assert text.startswith("CREATE TABLE `t` (\n  `id` int")


def test_generated_keys_are_shown(mysql: MySQL, database: str) -> None:
    """A definition contains an invisible generated primary key, because row events contain it."""
    mysql.execute(f"CREATE DATABASE {database}")
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_generate_invisible_primary_key = ON")
        cursor.execute(f"CREATE TABLE {database}.t (v INT)")
    mysql.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF")
    try:
        text = Tables(config_of(mysql)).fetch(database, "t")
    finally:
        mysql.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = ON")
    assert text is not None
    assert "my_row_id" in text


def test_lost_connections(source_server: SqlServer, database: str) -> None:
    """A connection that the server closed is replaced silently; the error for an unknown account has a CREATE USER."""
    source_server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT)")
    tables = Tables(config_of(source_server))
    text = tables.fetch(database, "t")
    for row in source_server.query("SHOW PROCESSLIST"):
        if row["User"] == "canal":
            source_server.execute(f"KILL {row['Id']}")
    assert tables.fetch(database, "t") == text
    nobody = config_of(source_server, user="nobody", password="x")
    with pytest.raises(SourceRefused, match="CREATE USER 'nobody'@'%'"):
        Tables(nobody).fetch(database, "t")


def test_the_charset_of_a_schema(source_server: SqlServer, database: str) -> None:
    """It is the present one, also after the server has closed the idle connection; "" for no schema."""
    source_server.execute(f"CREATE DATABASE {database} CHARACTER SET gbk")
    tables = Tables(config_of(source_server))
    assert tables.charset(database) == "gbk"
    source_server.execute(f"ALTER DATABASE {database} CHARACTER SET latin1")
    for row in source_server.query("SHOW PROCESSLIST"):
        if row["User"] == "canal":
            source_server.execute(f"KILL {row['Id']}")
    assert tables.charset(database) == "latin1"
    assert tables.charset(f"not_{database}") == ""
    tables.close()


def test_unreachable() -> None:
    """If no server listens, the source is unavailable, and a retry may help."""
    server = MySQL()
    with pytest.raises(SourceUnavailable, match=server.address) as raised:
        Tables(config_of(server)).fetch("d", "t")
    assert raised.value.retryable


def test_many_definitions_at_a_time(source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One question is for a hundred tables; one of them that is gone or a view keeps no other from being found."""
    names = [f"t{number}" for number in range(120)]
    source_server.execute(
        f"CREATE DATABASE {database}",
        *(f"CREATE TABLE {database}.{name} (id INT) ENGINE=MyISAM" for name in names if name not in ("t7", "t119")),
        f"CREATE VIEW {database}.v AS SELECT 1",
    )
    asked: list[str] = []
    ask_all = SourceSession.ask_all

    def counted(session: SourceSession, sql: str) -> Iterator[list[dict[str, Any]]]:
        asked.append(sql)
        return ask_all(session, sql)

    monkeypatch.setattr(SourceSession, "ask_all", counted)
    tables = Tables(config_of(source_server))
    found = tables.fetch_all([(database, name) for name in [*names[:50], "v", *names[50:]]])
    assert [name for (_, name), _ in found] == [*names[:50], "v", *names[50:]]
    assert [name for (_, name), sql in found if sql is None] == ["t7", "v", "t119"]
    assert all(sql.startswith(f"CREATE TABLE `{name}` (") for (_, name), sql in found if sql is not None)
    assert len(asked) == 3
    assert tables.fetch_all([]) == []
    tables.close()
