"""The entries we make of real binlog files are those that canal made of them, byte for byte."""

from __future__ import annotations

import pytest

from canal_ha.config.model import DecodeOptions
from lab.golden import MARIADB_GTIDS, MYSQL_GTIDS, Recorded, entries, expected, replay

GTIDS = DecodeOptions(gtid_on=True)
WITHOUT_HISTORY = DecodeOptions(table_history=False)
CASES = {tag: sorted({recorded.case for recorded in entries(tag)}) for tag in ("mysql9", "mariadb10.11")}


def _first_difference(expected: list[tuple[int, bytes]], made: list[tuple[int, bytes]]) -> str:
    for (offset, want), (got_offset, got) in zip(expected, made, strict=False):
        if (offset, want) != (got_offset, got):
            return f"entry at {offset}: expected {want!r}, made {got!r} of {got_offset}"
    return f"{len(made)} entries made, {len(expected)} expected"


def _compare(recorded: list[Recorded], made: list[tuple[int, bytes]]) -> None:
    expected = [(one.offset, one.entry) for one in recorded]
    assert made == expected, _first_difference(expected, made)


@pytest.fixture(scope="module")
def replayed(request: pytest.FixtureRequest) -> dict[str, list[tuple[int, bytes]]]:
    """Each default file, replayed once."""
    del request
    return {}


@pytest.mark.parametrize(("tag", "case"), [(tag, case) for tag, cases in CASES.items() for case in cases])
def test_every_case(tag: str, case: str, replayed: dict[str, list[tuple[int, bytes]]]) -> None:
    """All entries of one group of statements agree, and none is missing or too many."""
    if tag not in replayed:
        replayed[tag] = list(replay(tag))
    recorded = [one for one in expected(tag) if one.case == case]
    offsets = {one.offset for one in recorded}
    _compare(recorded, [(offset, entry) for offset, entry in replayed[tag] if offset in offsets])


@pytest.mark.parametrize("tag", CASES)
def test_nothing_else(tag: str, replayed: dict[str, list[tuple[int, bytes]]]) -> None:
    """Events that canal makes no entry of yield none here, and the order is the same."""
    if tag not in replayed:
        replayed[tag] = list(replay(tag))
    assert [offset for offset, _ in replayed[tag]] == [one.offset for one in entries(tag)]


@pytest.mark.parametrize(
    ("name", "gtid_set", "options"),
    [
        ("mysql9_gtid", MYSQL_GTIDS, GTIDS),
        ("mariadb10.11_gtid", MARIADB_GTIDS, GTIDS),
        ("mysql9_gtid.gtidnotsdb", MYSQL_GTIDS, DecodeOptions(gtid_on=True, table_history=False)),
    ],
)
def test_gtid_mode(name: str, gtid_set: str, options: DecodeOptions) -> None:
    """Headers carry the executed set and the current transaction; the file's first statement lies before the start."""
    tag = name.removesuffix(".gtidnotsdb")
    recorded = expected(name)
    made = list(replay(tag, options, gtid_set=gtid_set))
    assert made[0][0] < recorded[0].offset
    _compare(recorded, made[1:])


def test_gtid_mode_without_a_start_set() -> None:
    """gtidon without a known executed set tells no GTIDs at all: the same bytes as without it."""
    assert list(replay("mysql9", GTIDS)) == list(replay("mysql9"))


def test_table_filters() -> None:
    """Filtered tables leave nothing; transactions that become empty pass every five seconds of source time only."""
    made = list(replay("mysql9", tables=(r"golden\.t_.*,golden\.tx1", r".*\.t_json,golden\.t_geo")))
    _compare(entries("mysql9.filter"), made)


def test_without_table_history() -> None:
    """With canal.instance.tsdb.enable=false type texts are the server's, not the statements'."""
    _compare(entries("mysql9.notsdb"), list(replay("mysql9", WITHOUT_HISTORY)))


def test_statement_filters() -> None:
    """filter.query.* leave the rows alone and drop everything else; XA COMMIT and XA ROLLBACK stay.

    614 is what canal left of this file with all three set.
    """
    options = DecodeOptions(filter_query_ddl=True, filter_query_dcl=True, filter_query_dml=True)
    made = list(replay("mysql9", options))
    assert len(made) == 614
    assert set(made) <= {(one.offset, one.entry) for one in entries("mysql9")}
