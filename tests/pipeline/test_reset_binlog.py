"""Rows after RESET BINARY LOGS are new, also in the second of the last commit, and before a row from the future."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lab import MariaDB, MySQL, Node, SqlServer, follow
from tests.pipeline.copies import copied
from tests.pipeline.driver import Pipeline, described, run_once
from tests.pipeline.test_engine import create, selected, source
from tests.waiting import until

pytestmark = pytest.mark.real

PAST, FUTURE = 1_700_000_000, 2_120_000_000  # s since 1970


def insert(server: SqlServer, name: str, second: int, keys: Sequence[int]) -> None:
    """Insert rows, each in a transaction of this second."""
    rows = [f"INSERT INTO {name} (id, name) VALUES ({key}, 'x')" for key in keys]
    server.execute(f"SET timestamp = {second}", *rows)


@pytest.mark.parametrize("make", [MySQL, MariaDB])
@pytest.mark.parametrize("second", [PAST, FUTURE], ids=["same second", "future"])
def test_rows_after_a_reset_are_not_taken_for_known(make: type[SqlServer], second: int, tmp_path: Path) -> None:
    """The new binlog has them at positions that the target has had."""
    with make() as server, Node({"shop": follow(server, {"canal.instance.position.lost": "earliest"})}) as node:
        name = create(server, "shop")
        pipeline = described(tmp_path, source(node, "shop", snapshot=name), "copies", tables=(name,))

        def follows() -> bool:
            return copied(tmp_path / "copies", name) == selected(server, name)

        insert(server, name, second, range(5))
        run_once(pipeline)
        server.execute("FLUSH BINARY LOGS")  # the node notices a reset if the journal is gone
        with Pipeline(pipeline):
            insert(server, name, second, range(5, 40))
            until(follows)
        node.stop()
        server.execute("RESET BINARY LOGS AND GTIDS" if server.flavor == "mysql" else "RESET MASTER")
        node.start()
        insert(server, name, PAST, range(50, 55))
        with Pipeline(pipeline, crash=1) as process:
            process.wait()
        with Pipeline(pipeline):
            until(follows)
            insert(server, name, PAST, range(60, 100))
            until(follows)
