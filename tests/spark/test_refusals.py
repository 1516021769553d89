"""Errors for a cursor that does not fit the spool: their steps work as printed."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from canal_ha.cli import cursor as cli
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.options import SourceOptions, parse
from canal_ha.spark import refusals
from canal_ha.spark.lineage import Epoch, Lineage, Writer
from canal_ha.spark.manifest import Manifest, SegmentInfo

ZOOKEEPER = {"zkServers": "zk1:2181,zk2:2181/shop"}
NODES = {"servers": "node1:11111"}
ONE = LogPosition("mysql-bin.000003", 1234, server_id=1, mark="spool other writer none segment 9")
TWO = LogPosition(
    "mysql-bin.000003",
    1234,
    server_id=1,
    part=1,
    others=(LogPosition("binlog.000007", 56, server_id=2, part=2),),
    mark=ONE.mark,
)


def options(**given: str) -> SourceOptions:
    """Return the options of a query."""
    return parse({"destination": "ex ample", "clientId": "7", "spoolDir": "/spool", **given})


def spool(*lasts: LogPosition) -> Manifest:
    """Return a spool with one segment up to each of these positions."""
    writer = Writer(Epoch(1, "0000000a"), 0, follows=True)
    segments = tuple(made(seq, last) for seq, last in enumerate(lasts))
    return Manifest("mine", segments, next_seq=len(lasts), lineage=Lineage((writer,), since=0))


def commands(text: str) -> list[dict[str, Any]]:
    """Return the parameters of the printed commands, as the command line parses them."""
    found = []
    for printed in re.findall(r"`(.*?)`", text):
        program, group, name, *arguments = shlex.split(printed)
        assert (program, group) == ("canal-ha", "cursor")
        assert name == cli.set_cursor.name
        found.append(cli.set_cursor.make_context(name, arguments).params)
    return found


@pytest.mark.parametrize("source", [ZOOKEEPER, NODES])
@pytest.mark.parametrize(
    ("cursor", "to"), [(ONE, ["mysql-bin.000003:1234"]), (TWO, ["1/mysql-bin.000003:1234", "2/binlog.000007:56"])]
)
def test_the_command_line_takes_the_commands_of_a_taken_client_id(
    source: dict[str, str], cursor: LogPosition, to: list[str]
) -> None:
    """The error has one command for each source of the destination; names are quoted for a shell."""
    text = str(refusals.taken("ex ample", options(**source), "/spool", spool(), cursor))
    found = commands(text)
    assert [each["to"] for each in found] == to
    for each in found:
        assert Place.parse(each["to"]).journal
        assert (each["destination"], each["client_id"]) == ("ex ample", 7)
        assert each["zk"] == source.get("zkServers")
        assert (each["conf"] is None) is ("zkServers" in source)
    assert "no longer used, continue with this spool from there: 1. Stop the query." in text


def test_the_steps_say_what_has_to_stop() -> None:
    """A node overwrites cursors in its files, so it must stop; cursors in ZooKeeper can be moved while it runs.

    The commands have no option for authentication.
    """
    lost = [
        str(refusals.lost("example", options(**source), "/spool", spool(ONE), ONE)) for source in (ZOOKEEPER, NODES)
    ]
    command = "`canal-ha cursor set --destination example --client-id 7 --to mysql-bin.000003:1234"
    assert (
        f"1. Stop the query. 2. Run: {command} --zk zk1:2181,zk2:2181/shop` 3. Start the query. This works" in lost[0]
    )
    assert "2. Stop the node. 3. On its machine run, with the node's configuration directory as DIR:" in lost[1]
    assert f"{command} --conf DIR` 4. Start the node and the query. This works as long as the source keeps" in lost[1]
    assert not any("auth" in text for text in lost)


def test_a_spool_of_several_sources_begins_again_where_it_knows_each_of_them() -> None:
    """A segment ends with an entry of one source. If none ends with a source, a person must supply its position."""
    ends = [
        LogPosition("mysql-bin.000002", 900, server_id=1),
        LogPosition("binlog.000006", 40, server_id=2),
        LogPosition("binlog.000006", 50, server_id=2),
    ]
    known = refusals.lost("example", options(**ZOOKEEPER), "/spool", spool(*ends), TWO)
    assert [each["to"] for each in commands(str(known))] == ["1/mysql-bin.000002:900", "2/binlog.000006:50"]
    assert "as long as the sources keep mysql-bin.000002 (source 1) and binlog.000006 (source 2)" in str(known)
    partly = refusals.lost("example", options(**ZOOKEEPER), "/spool", spool(*ends[1:]), TWO)
    assert [each["to"] for each in commands(str(partly))] == ["1/JOURNAL:OFFSET", "2/binlog.000006:50"]
    assert "The spool has no position of source 1: use one from before the copy was made" in str(partly)


def test_an_empty_spool_is_called_empty() -> None:
    """The error has no command, because there is no position to return to."""
    text = str(refusals.lost("example", options(**NODES), "/spool", spool(), ONE))
    assert "missing in the spool /spool: it is empty, but the server's cursor" in text
    assert not commands(text)


def made(seq: int, last: LogPosition) -> SegmentInfo:
    """Return a segment up to this position."""
    return SegmentInfo(seq, f"{seq}.seg", 1, 1, 1, closed=True, written_ms=0, last=last)
