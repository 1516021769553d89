"""The status document of a node."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from canal_ha.accounts.account import Account, AccountRole
from canal_ha.admin.document import NodeFacts, OwnStatus, status_document
from canal_ha.instance.status import InstanceStatus, PartStatus, QueueStatus, StreamStatus
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import ColumnRules
from canal_ha.model.snapshot import SnapshotState


def test_the_status_tells_no_hashes_and_no_keys_of_rows() -> None:
    """A reader of the status may not see the rows of other clients, and finds values by guessing what a hash is of.

    The places remain, with the server and its GTIDs.
    """
    at = LogPosition("bin.000001", 4, 5, 6, "gtid", "db", 3306, server="uuid", part=1)
    at = replace(at, trail="secret", origins="secret", mark="secret", snapshot='{"key":["secret"]}')
    at = at.beside([replace(at, part=2)])
    stream = StreamStatus(1001, "", "open", cursor=at, decoded=at, parts=(PartStatus(1, "db:1", decoded=at),))
    queue = QueueStatus("kafka:1", position=at)
    instance = InstanceStatus("shop", "db:1", newest=at, streams=(stream,), queue=queue)
    document = status_document(NodeFacts("node:1", "compiled", 0.0), [instance], 0.0)
    assert "secret" not in json.dumps(document)
    cursor = document["destinations"][0]["streams"][0]["cursor"]
    shown = ("journal", "offset", "timestamp_ms", "server_id", "gtid", "address", "port", "server", "part")
    assert [cursor[name] for name in shown] == ["bin.000001", 4, 5, 6, "gtid", "db", 3306, "uuid", 1]
    assert [each["part"] for each in cursor["others"]] == [2]
    assert "secret" in at.to_json(with_type=True)


READ = frozenset({AccountRole.READ})
TABLES = ("shop.orders", "bank.cards")
WHERE = {"shop.orders": "id < 5", "bank.cards": "pin = '1234'"}


@pytest.mark.parametrize(
    ("account", "tables", "where"),
    [
        (Account("own", roles=READ, client_ids=((1001, 1001),)), TABLES, WHERE),
        (Account("ops", roles=frozenset({AccountRole.ADMIN})), TABLES, WHERE),
        (Account("other", roles=READ, client_ids=((7, 7),)), TABLES, dict.fromkeys(TABLES, "***")),
        (Account("monitor"), TABLES, dict.fromkeys(TABLES, "***")),
        (Account("shop", roles=READ, filter=r"shop\..*"), ("shop.orders", "***"), {"shop.orders": "id < 5"}),
        (Account("masked", roles=READ, privacy=ColumnRules(mask="a:b")), TABLES, dict.fromkeys(TABLES, "***")),
    ],
    ids=lambda each: each.name if isinstance(each, Account) else "",
)
def test_a_status_tells_no_condition_of_a_snapshot_of_another_client(
    account: Account, tables: tuple[str, ...], where: dict[str, str]
) -> None:
    """Everybody with the destination saw the values that somebody else looks for, and tables outside its filter."""
    state = SnapshotState("s1", TABLES, WHERE, error="bank.cards: pin = '1234' is wrong", table=1)
    state = replace(state, left_out=("bank.pin_1234",))
    more = {"rows_per_s": 1.0, "failing": "bank.cards: pin = '1234' takes too long", "retry_in_s": 2.0}
    stream = StreamStatus(1001, "", "open", snapshot=state.facts() | more)
    other = StreamStatus(7, "", "open")
    own = OwnStatus(
        NodeFacts("node:1", "compiled", 0.0), lambda: [InstanceStatus("shop", "db:1", streams=(stream, other))]
    )
    found = own(replace(account, destinations=("*",)))["destinations"][0]["streams"]
    shown = found[0]["snapshot"]
    assert (tuple(shown["tables"]), shown["where"]) == (tables, where)
    assert tuple(shown["reading"]) == tables[1:]
    sees_all = (tables, where) == (TABLES, WHERE)
    hidden = json.dumps({**shown, "left_out": ()})
    assert ("1234" in hidden) is sees_all
    assert tuple(shown["left_out"]) == (state.left_out if tables == TABLES else ("***",))
    assert bool(shown["error"])
    assert bool(shown["failing"])
    assert (shown["rows_per_s"], shown["table"]) == (1.0, 1)
    assert found[1]["snapshot"] is None
