"""Our entries of recorded binlog files equal canal's, byte for byte."""

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
    """Return an empty cache for the entries of each replayed file."""
    del request
    return {}


@pytest.mark.parametrize(("tag", "case"), [(tag, case) for tag, cases in CASES.items() for case in cases])
def test_every_case(tag: str, case: str, replayed: dict[str, list[tuple[int, bytes]]]) -> None:
    """Our entries of one group of statements equal canal's; none is missing or additional."""
    if tag not in replayed:
        replayed[tag] = list(replay(tag))
    recorded = [one for one in expected(tag) if one.case == case]
    offsets = {one.offset for one in recorded}
    _compare(recorded, [(offset, entry) for offset, entry in replayed[tag] if offset in offsets])


@pytest.mark.parametrize("tag", CASES)
def test_nothing_else(tag: str, replayed: dict[str, list[tuple[int, bytes]]]) -> None:
    """Only the events for which canal made an entry give one, in the same order."""
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
    """Entries with GTIDs in their headers equal canal's, after the first one, which lies before canal's start."""
    tag = name.removesuffix(".gtidnotsdb")
    recorded = expected(name)
    made = list(replay(tag, options, gtid_set=gtid_set))
    assert made[0][0] < recorded[0].offset
    _compare(recorded, made[1:])


def test_gtid_mode_without_a_start_set() -> None:
    """gtidon without a start set adds no GTIDs: the bytes are the same as without gtidon."""
    assert list(replay("mysql9", GTIDS)) == list(replay("mysql9"))


def test_table_filters() -> None:
    """Filtered tables give no entries, and the transactions that become empty pass as often as in canal."""
    made = list(replay("mysql9", tables=(r"golden\.t_.*,golden\.tx1", r".*\.t_json,golden\.t_geo")))
    _compare(entries("mysql9.filter"), made)


def test_without_table_history() -> None:
    """With canal.instance.tsdb.enable=false the type texts are the server's, not those of statements."""
    _compare(entries("mysql9.notsdb"), list(replay("mysql9", WITHOUT_HISTORY)))


def test_statement_filters() -> None:
    """filter.query.* drop statements and keep rows, XA COMMIT and XA ROLLBACK.

    With all three set, canal made 614 entries of this file.
    """
    options = DecodeOptions(filter_query_ddl=True, filter_query_dcl=True, filter_query_dml=True)
    made = list(replay("mysql9", options))
    assert len(made) == 614
    assert set(made) <= {(one.offset, one.entry) for one in entries("mysql9")}
