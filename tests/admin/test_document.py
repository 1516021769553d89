"""The status document of a node."""

from __future__ import annotations

import json
from dataclasses import replace

from canal_ha.admin.document import NodeFacts, status_document
from canal_ha.instance.status import InstanceStatus, PartStatus, QueueStatus, StreamStatus
from canal_ha.model.position import LogPosition


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
