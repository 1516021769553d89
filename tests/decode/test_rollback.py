"""Rows that the source logged and rolled back: they are never delivered, and the rows around them are."""

from __future__ import annotations

import pytest

from canal_ha.client.rows import rows_of
from canal_ha.config.model import DecodeOptions
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.outputs import Passed
from canal_ha.errors import MalformedEvent, RolledBackLate
from lab.dump import Dump, decoder, entries


def numbers(dump: Dump, work: Decoder | None = None, step: int = 0) -> list[str]:
    """Return the value of every row delivered. step: bytes fed at a time, 0 for all."""
    data = bytes(dump.data)
    work = work or decoder()
    found: list[str] = []
    for at in range(0, len(data), step or len(data)):
        found += [
            str(row.after["c0"])
            for row in rows_of(entries(work.feed(data[at : at + (step or len(data))])))
            if row.after and "c0" in row.after
        ]
    return found


def mariadb_gtid(dump: Dump, sequence: int, flags: int = 12, extra: bytes = bytes(6)) -> Dump:
    """Append MariaDB's GTID event, which stands in place of BEGIN."""
    return dump.add(162, sequence.to_bytes(8, "little") + bytes(4) + bytes([flags]) + extra)


@pytest.mark.parametrize("step", [0, 1, 7, 64])
def test_a_transaction_that_ends_in_rollback_is_not_delivered(step: int) -> None:
    """Whatever arrives together, no row of it appears; the transactions around it do."""
    dump = Dump().format().begin().table().insert(1).xid()
    dump.begin().table().insert(2).insert(3).query("ROLLBACK")
    dump.begin().table().insert(4).xid()
    assert numbers(dump, step=step) == ["1", "4"]


@pytest.mark.parametrize("step", [0, 7])
def test_statements_inside_do_not_show_the_rows_before_them(step: int) -> None:
    """MariaDB's ANNOTATE, and SAVEPOINT, make no rows visible that ROLLBACK takes back."""
    dump = mariadb_gtid(Dump().format(b"10.11.19-MariaDB"), 1)
    dump.add(160, b"INSERT 1").table().insert(1).query("SAVEPOINT `a`").add(160, b"INSERT 2").table().insert(2)
    dump.query("ROLLBACK")
    mariadb_gtid(dump, 2).add(160, b"INSERT 3").table().insert(3).xid()
    assert numbers(dump, step=step) == ["3"]


@pytest.mark.parametrize("step", [0, 1, 7, 64])
def test_rows_behind_a_savepoint_that_is_rolled_back_to_are_not_delivered(step: int) -> None:
    """The rows before the savepoint and behind ROLLBACK TO are delivered, in order."""
    dump = Dump().format().begin().table().insert(1).query("SAVEPOINT `a`").table().insert(2)
    dump.query("ROLLBACK TO `a`").table().insert(3).xid()
    assert numbers(dump, step=step) == ["1", "3"]


def test_savepoints_nest_and_names_are_used_again() -> None:
    """ROLLBACK TO forgets the savepoints set later; a name set again stands for the later place; case is ignored."""
    dump = Dump().format().begin().table().insert(1).query("SAVEPOINT `a`").insert(2).query("SAVEPOINT `b`").insert(3)
    dump.query("ROLLBACK TO `B`").insert(4).query("SAVEPOINT `a`").insert(5).query("ROLLBACK TO `a`").insert(6)
    dump.query("ROLLBACK TO `b`").insert(7).xid()
    assert numbers(dump) == ["1", "2", "7"]


def test_a_savepoint_of_an_earlier_transaction_is_not_known() -> None:
    """What to take back must be certain: a name that this transaction has not set is an error."""
    dump = Dump().format().begin().table().insert(1).query("SAVEPOINT `a`").xid()
    dump.begin().table().insert(2).query("ROLLBACK TO `a`").xid()
    work = decoder()
    with pytest.raises(MalformedEvent, match="ROLLBACK TO `a`: this transaction has set no such savepoint"):
        numbers(dump, work)


@pytest.mark.parametrize(
    ("end", "go_on"), [("ROLLBACK", r"mysql-bin\.000007:\d+"), ("ROLLBACK TO `a`", "the end of the transaction")]
)
def test_a_rollback_behind_delivered_pieces_stops_the_stream(end: str, go_on: str) -> None:
    """Rows of a large transaction that were delivered cannot be taken back: the error says so, and where to go on."""
    dump = Dump().format().begin().query("SAVEPOINT `a`").table()
    for number in range(12):
        dump.insert(number)
    dump.query(end).xid()
    with pytest.raises(RolledBackLate, match=rf"transaction\.size.*set the cursor to {go_on} "):
        numbers(dump, decoder(options=DecodeOptions(transaction_size=4)))


def test_a_rollback_of_the_last_piece_only_is_exact() -> None:
    """Pieces before the savepoint are delivered early; only rows behind it are taken back."""
    dump = Dump().format().begin().table()
    for number in range(9):
        dump.insert(number)
    dump.query("SAVEPOINT `a`").table().insert(100).query("ROLLBACK TO `a`").insert(9).xid()
    assert numbers(dump, decoder(options=DecodeOptions(transaction_size=4))) == [str(n) for n in range(10)]


def test_reading_goes_on_behind_a_rollback() -> None:
    """The end of a rolled-back transaction is a boundary at which a dump may start again."""
    dump = Dump().format().begin().table().insert(2).query("ROLLBACK")
    passed = [out for out in decoder().feed(bytes(dump.data)) if isinstance(out, Passed)]
    assert passed[-1].position == dump.position
