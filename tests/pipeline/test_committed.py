"""What a target knows of entries that come again, although it keeps none of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from canal_ha.model.position import LogPosition
from canal_ha.pipeline.intake import Intake
from canal_ha.pipeline.redelivery import Committed, server_of
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from tests.pipeline.test_intake import entries_of, transaction, walk
from tests.spark.entries import begin, ddl, end, insert

HERE = "8f0e"
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def kept(
    committed: list[bytes], again: list[bytes], cursor: LogPosition | None, sources: str = "", **last: Any
) -> list[bytes]:
    """Return the entries that a target gets, of those that come after a connection.

    committed: the entries that it has.
    sources: from which they came; "" of one source.
    last: attributes of the last one's position.
    """
    before = Intake(1 << 20)
    before.connected(HERE)
    before.add(1, walk(committed))
    draft = before.take()
    assert draft is not None
    assert draft.last is not None
    place = replace(draft.last, **last)
    known = Committed(place, draft.newest_ms, draft.digests, cursor, whole=draft.whole, sources=sources)
    intake = Intake(1 << 20)
    intake.connected(server_of(cursor), known)
    intake.add(2, walk(again))
    found = []
    while (piece := intake.take()) is not None:
        found += entries_of(piece)
        intake.made_durable(piece)
    assert intake.acknowledged() == [2]
    return found


def entries_with_rows(entries: list[bytes]) -> list[bytes]:
    return [entry for entry in entries if pb.Entry.FromString(entry).entryType == pb.ROWDATA]


def cursor(offset: int, **more: Any) -> LogPosition:
    return replace(LogPosition("bin.000001", offset, 1000, 1, server=HERE, mark="pipeline a commit 1"), **more)


def test_committed_transactions_do_not_come_twice() -> None:
    """Also if other servers wrote some of them first: the binlog's own server counts."""
    one, two, new = transaction(100), transaction(200, server=2), transaction(300)
    assert kept([*one, *two], [*one, *two, *new], cursor(90)) == new
    assert kept([*one, *two], [*two, *new], cursor(120)) == new
    assert kept([*one, *two], [*one, *two], cursor(90)) == []


def test_a_binlog_that_was_reset_is_new() -> None:
    """Its entries are before the cursor, or newer than all that is committed."""
    old, anew = transaction(500), transaction(100)
    assert kept(old, anew, cursor(400)) == anew
    later = transaction(450, time=2000)
    assert kept(old, later, cursor(400)) == later


def test_the_binlog_of_another_server_is_new() -> None:
    """Positions of two servers tell nothing of each other. Without the servers' names, the writer's id does."""
    old, other = transaction(500), transaction(100, server=2)
    assert kept(old, other, cursor(90, server="other")) == other
    assert kept(old, other, None) == other


def test_gtids_are_known_on_another_server() -> None:
    """In GTID mode, a switch to another server brings no committed transaction twice."""
    one = transaction(700, gtid=f"{UUID}:1-5", own=f"{UUID}:5")
    new = transaction(900, gtid=f"{UUID}:1-6", own=f"{UUID}:6")
    there = transaction(100, gtid=f"{UUID}:1-5", own=f"{UUID}:5")
    assert kept(one, [*there, *new], cursor(90, server="other")) == new
    unmarked = cursor(90, server="other", mark="")
    assert kept(one, there, unmarked) == there, "the cursor may be in binary logs that were reset"


def test_numbers_of_a_domain_that_another_server_wrote_are_new() -> None:
    """MariaDB: the standby took over without the last transactions, and went on with their numbers."""
    lost, there = transaction(700, gtid="0-1-27"), [*transaction(100, gtid="0-2-26"), *transaction(200, gtid="0-2-27")]
    assert kept(lost, there, cursor(90, server="other")) == there


def test_transactions_without_a_gtid_are_new() -> None:
    """MySQL's gtid_mode was turned off, so the set of the entries stands still."""
    one, new = transaction(700, gtid=f"{UUID}:1-5", own=f"{UUID}:5"), transaction(900, gtid=f"{UUID}:1-5")
    for server in (HERE, "other"):
        assert kept(one, new, cursor(730, server=server)) == new


@pytest.mark.parametrize("server", [HERE, "other"])
def test_the_rows_of_a_committed_statement_are_new(server: str) -> None:
    """CREATE TABLE ... SELECT of MariaDB has no begin, and its rows have the same GTID."""
    statement = ddl(700, "CREATE TABLE s.t (id INT)", "CREATE", gtid="0-1-5")
    rest = [insert(720, 1, gtid="0-1-5"), end(730, gtid="0-1-5")]
    assert kept([statement], rest, cursor(600, server=server)) == rest


def test_rows_of_a_snapshot_behind_a_committed_transaction_are_new() -> None:
    """They have the GTID set of what is before them, which the target has."""
    done = transaction(500, gtid=f"{UUID}:1-5")
    chunk = [begin(510, gtid=f"{UUID}:1-5"), insert(520, 1, snapshot="s", gtid=f"{UUID}:1-5")]
    chunk.append(end(520, gtid=f"{UUID}:1-5"))
    for server in (HERE, "other"):
        assert entries_with_rows(kept(done, chunk, cursor(520, server=server))) == chunk[1:2]


@pytest.mark.parametrize("behind", [0, 100])
def test_a_cursor_behind_the_target_makes_nothing_known(behind: int) -> None:
    """The judge has allowed it: what comes is new, whatever its position is."""
    old, new = transaction(500), transaction(620 + behind)
    assert kept(old, new, cursor(600)) == new


def merged(offset: int, server: str = HERE, *, other_id: int = 2) -> LogPosition:
    """Return a cursor in two sources. offset, server: of the first one; the other one has a low position."""
    other = LogPosition("bin.000001", 4, 1000, other_id, server="other", part=2)
    return cursor(offset, part=1, server=server).beside([other])


def test_committed_transactions_of_a_merged_source_do_not_come_twice() -> None:
    one, two, new = transaction(100), transaction(200), transaction(300)
    assert kept([*one, *two], [*one, *two, *new], merged(90), f"{HERE},other", server="") == new
    assert kept([*one, *two], [*one, *two], merged(90), server="") == [], "the progress is of an earlier version"


@pytest.mark.parametrize("gtid", ["0-1-", f"{UUID}:1-"])
def test_transactions_of_a_merged_source_that_switched_to_a_standby_with_lower_positions_are_new(gtid: str) -> None:
    """Also in the second of the last commit. GTIDs tell it if a position is between those of the former server."""
    old = transaction(5000, gtid=f"{gtid}5", own=f"{UUID}:5" if UUID in gtid else "")
    new = transaction(1200, gtid=f"{gtid}6", own=f"{UUID}:6" if UUID in gtid else "")
    without = transaction(1200)
    both = f"{HERE},other"
    assert kept(old, new, merged(4900), both, server="") == new, "the cursor names the master"
    assert kept(old, without, merged(4900), both, server="") == without
    assert kept(old, without, merged(1100, "standby"), both, server="") == without, "it has been moved"
    assert kept(old, new, merged(1100), both, server="") == new


def test_rows_of_a_merged_source_with_the_server_id_of_another_one_are_new() -> None:
    """Also in the second of the last commit. GTIDs tell which ones are known."""
    old, other, both = transaction(5000), transaction(1200), f"{HERE},other"
    assert kept(old, other, merged(4900, other_id=1), both, server="") == other
    old = transaction(5000, gtid=f"{UUID}:1-5", own=f"{UUID}:5")
    new = transaction(
        1200, gtid="4e11fa47-71ca-11e1-9e33-c80aa9429562:1-2", own="4e11fa47-71ca-11e1-9e33-c80aa9429562:2"
    )
    assert kept(old, [*old, *new], merged(4900, other_id=1), both, server="") == new
