"""An event damaged on its way from MySQL stops one stream, which reports its position; nothing else is affected."""

from __future__ import annotations

import re

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import rows_of
from canal_ha.errors import ServerRefused
from lab import Node, SqlServer, follow
from tests.node.breaking_proxy import BreakingProxy, Damage, flipped, too_long
from tests.node.following import column, destination_of, following, read, stream_of
from tests.waiting import until

pytestmark = pytest.mark.real

PLAIN = {"canal.instance.master.sslMode": "DISABLED"}  # the proxy reads what passes


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flipped, "the checksum of an event of type [23]. does not hold"),
        (too_long, "a value of .* bytes beyond the event"),
    ],
)
def test_a_damaged_event(source_server: SqlServer, database: str, damage: Damage, reason: str) -> None:
    """Rows before the event arrive and none of its rows do; log and status name the journal, offset and reason.

    A new SUBSCRIBE after the damage continues without loss. Another client id and another destination do not notice.
    """
    poison = f"POISON of {database}"  # no other event of the server has it
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id int PRIMARY KEY, v varchar(100))",
    )
    with (
        BreakingProxy(source_server.port, poison.encode(), damage) as proxy,
        Node(
            {
                "hurt": follow(source_server, {**PLAIN, "canal.instance.master.address": proxy.address}),
                "well": follow(source_server),
            }
        ) as node,
        following(node, "hurt", 1001, rf"{database}\..*") as client,
        following(node, "well", 1001, rf"{database}\..*") as untouched,
    ):
        source_server.execute(f"INSERT INTO {database}.t VALUES (1, 'good')")
        assert column(read(client, 1)) == [1]
        source_server.execute(f"INSERT INTO {database}.t VALUES (2, 'good')")
        journal, offset = source_server.position()
        source_server.execute(
            f"INSERT INTO {database}.t VALUES (3, '{poison}')", f"INSERT INTO {database}.t VALUES (4, 'good')"
        )
        until(lambda: stream_of(node, "hurt")["state"] == "failed", what="the stop")
        with following(node, "hurt", 1002, rf"{database}\..*") as other:
            assert column(read(client, 1)) == [2]
            with pytest.raises(ServerRefused, match=f"malformed event at {journal}:") as refused:
                read_without_rows(client)
            source_server.execute(f"INSERT INTO {database}.t VALUES (5, 'good')")
            assert column(read(other, 1)) == [5]
            assert column(read(untouched, 5)) == [1, 2, 3, 4, 5]
        status = stream_of(node, "hurt")["error"]
        assert status in str(refused.value)
        where = status.split(":")[1]
        assert offset < int(where) < offset + 500
        assert re.search(reason, status)
        assert f'stream.stopped destination=hurt client_id=1001 error="{status}"' in node.log_file("hurt")
        assert stream_of(node, "hurt", 1002)["state"] == "open"
        assert not destination_of(node, "hurt")["source_error"]
        with following(node, "hurt", 1001, rf"{database}\..*") as again:
            assert column(read(again, 3)) == [3, 4, 5]
        assert stream_of(node, "hurt")["error"] == ""


def read_without_rows(client: SimpleConnector) -> None:
    """Send two GETs and check that they return no row.

    On MariaDB the text of the statement, before the damaged rows, is a batch of its own.
    """
    for _ in range(2):
        assert not column(rows_of(client.get_without_ack(10, 100).entries))
