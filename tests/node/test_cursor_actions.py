"""The cursor of a client moves and goes over HTTP, while the client reads."""

from __future__ import annotations

import json

import pytest

from canal_ha.client.http_access import HttpAccess
from canal_ha.client.node_http import post
from canal_ha.errors import LocalProtocolError
from lab import MariaDB, Node, follow
from tests.node.following import column, following, read
from tests.waiting import until

SHAPE = {"client_id": int, "before": str, "after": str, "dry_run": bool}


@pytest.mark.real
def test_a_cursor_moves_under_a_client_and_is_deleted(mariadb: MariaDB, database: str) -> None:
    """A dry run changes nothing. Moved back, the client gets its rows again. Deleted, the client id is unknown."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    with Node({"example": follow(mariadb)}, properties={"canal.audit": "on"}) as node:
        token = (node.directory / "logs" / "canal" / "operator.token").read_text().strip()

        def ask(body: dict[str, object]) -> dict[str, object]:
            access = HttpAccess(token=token)
            url = f"http://127.0.0.1:{node.admin_port}"
            return post(url, access, "example", "cursor", body, SHAPE, LocalProtocolError, 30)

        def cursor() -> tuple[str, int] | None:
            (stream,) = node.status()["destinations"][0]["streams"]
            return (stream["cursor"]["journal"], stream["cursor"]["offset"]) if stream["cursor"] else None

        with following(node, tables=rf"{database}\.t") as client:
            start = until(cursor)
            mariadb.execute(f"INSERT INTO {database}.t VALUES (1)", f"INSERT INTO {database}.t VALUES (2)")
            assert column(read(client, 2)) == [1, 2]
            until(lambda: cursor() != start)
            after = cursor()
            back = {"client_id": 1001, "action": "set", "to": f"{start[0]}:{start[1]}"}
            planned = ask({**back, "dry_run": True})
            assert (planned["after"], planned["dry_run"], cursor()) == (f"{start[0]}:{start[1]}", True, after)
            with pytest.raises(LocalProtocolError, match="client 1001 of example is in use by"):
                ask({"client_id": 1001, "action": "delete"})
            assert ask(back)["after"] == f"{start[0]}:{start[1]}"
            assert column(read(client, 2)) == [1, 2]
        with pytest.raises(LocalProtocolError, match="never subscribed"):
            ask({"client_id": 7, "action": "set", "to": "latest"})
        with pytest.raises(LocalProtocolError, match="has one source: omit 2/"):
            ask({**back, "to": "2/latest"})
        until(lambda: not node.status()["destinations"][0]["readers"])
        ask({"client_id": 1001, "action": "delete", "dry_run": True})
        assert len(node.status()["destinations"][0]["streams"]) == 1
        assert ask({"client_id": 1001, "action": "delete"})["after"] == ""
        assert node.status()["destinations"][0]["streams"] == []
        lines = map(json.loads, (node.directory / "logs" / "audit" / "audit.log").read_text().splitlines())
        assert {line["action"] for line in lines} >= {"cursor", "cursor moved"}
