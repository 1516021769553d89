"""Tables with geometry and text of several character sets, whose metadata MySQL and MariaDB count differently."""

from __future__ import annotations

import pytest

from lab import Node, SqlServer, follow
from tests.node.following import column, following, read

pytestmark = pytest.mark.real


def test_a_table_with_geometry_and_two_character_sets_stops_no_client(source_server: SqlServer, database: str) -> None:
    """The table's rows arrive, and a client with another filter reads on past them."""
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.other (id int PRIMARY KEY)",
        f"CREATE TABLE {database}.places (id int PRIMARY KEY, p point, a varchar(5) CHARACTER SET latin1,"
        " b varchar(5) CHARACTER SET utf8mb4, q point, e enum('x') CHARACTER SET latin1)",
    )
    with (
        Node({"example": follow(source_server)}) as node,
        following(node, client_id=1001, tables=rf"{database}\.places") as places,
        following(node, client_id=1002, tables=rf"{database}\.other") as other,
    ):
        source_server.execute(
            f"INSERT INTO {database}.places (id, a, b) VALUES (1, 'a', 'b')",
            f"INSERT INTO {database}.other VALUES (2)",
        )
        (row,) = read(places, 1)
        assert row.after is not None
        assert (row.after["id"], row.after["a"], row.after["b"], row.after["p"]) == (1, "a", "b", None)
        assert column(read(other, 1)) == [2]
