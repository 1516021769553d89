"""The rows of a SELECT from real servers, as a snapshot takes them."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.snapshot.result_set import RowMemory, RowStream
from lab import SqlServer
from lab.mysql import CANAL
from lab.ports import LOOPBACK

pytestmark = pytest.mark.real

ROWS, ROW_BYTES = 8000, 250
PIECE_BYTES = 128 << 10


def test_a_piece_stays_small_when_megabytes_come_at_once(source_server: SqlServer) -> None:
    """A change in the stream waits for one piece of a snapshot, so its size must not depend on the network."""
    source = SourceConfig(LOOPBACK, source_server.port)
    config = InstanceConfig("rows", source, username=CANAL, password=CANAL)
    numbers = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})"
    limit = "max_recursive_iterations" if source_server.flavor == "mariadb" else "cte_max_recursion_depth"
    memory = RowMemory()
    with closing(SourceSession(config, source)) as session:
        session.query(f"SET SESSION {limit} = {ROWS}")
        for _ in range(2):  # the second time there is room for all rows at once
            stream = RowStream(session, f"{numbers} SELECT i, REPEAT('x', {ROW_BYTES}) FROM n", memory)
            time.sleep(0.3)  # the server sends what the socket takes
            rows = stream.take(ROWS * ROW_BYTES * 2)
    assert rows.complete
    pieces = list(rows.pieces(lambda: PIECE_BYTES))
    assert sum(piece.count for piece in pieces) == rows.count == ROWS
    assert max(len(piece.packets) for piece in pieces) < 2 * PIECE_BYTES
