"""Positions: canal's JSON, lenient reading, and order."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from canal_ha.model.position import TYPE_NAME, LogPosition, read_json, split_journal

CANAL = (
    '{"@type":"com.alibaba.otter.canal.protocol.position.LogPosition","identity":{"slaveId":-1,"sourceAddress":'
    '{"address":"localhost","port":3306}},"postion":{"gtid":"","included":false,"journalName":"mysql-bin.000001",'
    '"position":2034,"serverId":1,"timestamp":1699999999000}}'
)
POSITION = LogPosition("mysql-bin.000001", 2034, 1699999999000, 1, "", "localhost", 3306)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
POSITIONS = st.builds(
    LogPosition,
    journal=TEXT,
    offset=st.integers(0, 1 << 62),
    timestamp_ms=st.integers(0, 1 << 62),
    server_id=st.none() | st.integers(0, (1 << 32) - 1),
    gtid=st.none() | TEXT,
    address=TEXT,
    port=st.integers(1, 65535),
    consumed=st.booleans(),
    mark=st.text(max_size=20),
)


def test_text() -> None:
    """canal's text, byte for byte, with `@type` first in ZooKeeper and without it in files."""
    assert POSITION.to_json(with_type=True) == CANAL
    assert POSITION.to_json(with_type=False) == CANAL.replace(f'"@type":"{TYPE_NAME}",', "")
    assert LogPosition.from_json(CANAL) == POSITION


def test_nulls_are_omitted() -> None:
    """An unknown server id or GTID has no key."""
    text = replace(POSITION, server_id=None, gtid=None).to_json(with_type=True)
    assert text == CANAL.replace('"gtid":"",', "").replace('"serverId":1,', "")
    assert LogPosition.from_json(text) == replace(POSITION, server_id=None, gtid=None)


def test_a_mark_counts_while_its_place_does() -> None:
    """A mark is part of the text, and is void if somebody changes the offset or the journal by hand."""
    text = replace(POSITION, mark="spool a").to_json(with_type=True)
    where = f'"at":2034,"journal":"{POSITION.journal}"'
    assert text == CANAL.replace('"position":2034', f'"mark":{{{where},"text":"spool a"}},"position":2034')
    assert LogPosition.from_json(text).mark == "spool a"
    assert LogPosition.from_json(text) == POSITION
    assert LogPosition.from_json(text.replace('"position":2034', '"position":2035')).mark == ""
    assert LogPosition.from_json(text.replace('"journalName":"', '"journalName":"x')).mark == ""
    assert LogPosition.from_json(text.replace(f'{{{where},"text":"spool a"}}', '"spool a"')).mark == ""


def test_consumed() -> None:
    """`consumed` repeats the offset, in alphabetical order, and is void if somebody changes the offset."""
    text = replace(POSITION, consumed=True).to_json(with_type=True)
    assert text == CANAL.replace('"postion":{', '"postion":{"consumed":2034,')
    assert LogPosition.from_json(text).consumed
    assert not LogPosition.from_json(text.replace('"position":2034', '"position":2035')).consumed
    assert not LogPosition.from_json(text.replace('"consumed":2034', '"consumed":null')).consumed


def test_whose_binlog_it_is() -> None:
    """Server and trail are in one key, in alphabetical order, which is void if somebody changes the offset."""
    text = replace(POSITION, server="u-1", trail="abc").to_json(with_type=True)
    assert text == CANAL.replace('"timestamp"', '"source":{"at":2034,"server":"u-1","trail":"abc"},"timestamp"')
    read = LogPosition.from_json(text)
    assert (read.server, read.trail) == ("u-1", "abc")
    for edited in (text.replace('"position":2034', '"position":2035'), text.replace('{"at":2034', '{"at":null')):
        assert (LogPosition.from_json(edited).server, LogPosition.from_json(edited).trail) == ("", "")
    assert LogPosition.from_json(text.replace('{"at":2034,"server":"u-1","trail":"abc"}', "7")).server == ""


def test_the_last_transaction_of_each_origin_is_beside_the_trail() -> None:
    """A node of an earlier version ignores the key, and a cursor that it wrote has none."""
    text = replace(POSITION, server="u-1", trail="abc", origins="xyz").to_json(with_type=True)
    whole = '"source":{"at":2034,"origins":"xyz","server":"u-1","trail":"abc"}'
    assert text == CANAL.replace('"timestamp"', f'{whole},"timestamp"')
    assert LogPosition.from_json(text).origins == "xyz"
    assert LogPosition.from_json(text.replace('"position":2034', '"position":2035')).origins == ""
    assert LogPosition.from_json(text.replace('"origins":"xyz",', "")).trail == "abc"


@given(POSITIONS, st.booleans())
def test_round_trip(position: LogPosition, with_type: bool) -> None:
    """A written position is read back, even with other blanks and another order of keys."""
    text = position.to_json(with_type=with_type)
    assert LogPosition.from_json(text) == position
    body = json.loads(text)
    shuffled = {key: dict(reversed(value.items())) if isinstance(value, dict) else value for key, value in body.items()}
    assert LogPosition.from_json(json.dumps(shuffled, indent=3)) == position


@given(POSITIONS)
def test_long_suffix(position: LogPosition) -> None:
    """Every integer may have Java's suffix L."""
    body = json.loads(position.to_json(with_type=True))
    assert LogPosition.from_json(_java_text(body)) == position


def _java_text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} : {_java_text(inner)}" for key, inner in value.items()) + "}"
    return f"{value}L" if type(value) is int else json.dumps(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a:1L,"\\{}[] é'), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("k1L:,", max_size=4), inner, max_size=4),
)


@given(JSON, st.booleans())
def test_texts_are_left_alone(value: Any, ascii_only: bool) -> None:
    """A text that looks like a long integer is read unchanged."""
    assert read_json(json.dumps(value, ensure_ascii=ascii_only)) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "7",
        "{}",
        '{"position":4}',
        '{"postion":7}',
        '{"postion":{},"identity":7}',
        '{"postion":{},"identity":{"sourceAddress":"x"}}',
        '{"postion":{"position":"x"}}',
        '{"postion":{"position":[4]}}',
        '{"postion":{"position":4.5}}',
        '{"postion":{"position":true}}',
        '{"postion":{"position":1e999}}',
        '{"postion":{"serverId":{}}}',
    ],
)
def test_nonsense(text: str) -> None:
    """A text that is not a position raises ValueError."""
    with pytest.raises(ValueError, match=r"position|value"):
        LogPosition.from_json(text)


def test_missing_fields() -> None:
    """Missing keys mean no server id, no GTID, time 0 and the default port."""
    assert LogPosition.from_json('{"postion":{"journalName":"b","position":"4","timestamp":null}}') == LogPosition(
        "b", 4, 0, None, None, "", 3306
    )


def test_order() -> None:
    """Positions are ordered by journal number, offset and sub-index; a consumed event lies behind its entries."""
    in_order = [
        LogPosition("mysql-bin.000002", 900),
        LogPosition("mysql-bin.000010", 4),
        LogPosition("mysql-bin.999999", 4),
        LogPosition("mysql-bin.1000000", 4),
        LogPosition("mysql-bin.1000000", 5),
        LogPosition("mysql-bin.1000000", 5, sub_index=1),
        LogPosition("mysql-bin.1000000", 5, sub_index=2),
        LogPosition("mysql-bin.1000000", 5, consumed=True),
        LogPosition("mysql-bin.1000000", 5, sub_index=2, consumed=True),
        LogPosition("mysql-bin.1000000", 6),
    ]
    assert all(one.order < two.order for one, two in pairwise(in_order))


@pytest.mark.parametrize(
    ("journal", "split"),
    [
        ("mysql-bin.000012", ("mysql-bin", 12)),
        ("a.b.3", ("a.b", 3)),
        ("nodot", ("nodot", 0)),
        ("a.b", ("a.b", 0)),
        ("", ("", 0)),
        ("x.²", ("x.²", 0)),
        ("x.٣", ("x.٣", 0)),
    ],
)
def test_split_journal(journal: str, split: tuple[str, int]) -> None:
    """The number follows the last dot; a journal without one has the number 0."""
    assert split_journal(journal) == split


FIRST = replace(POSITION, part=1)
SECOND = LogPosition("bin.000007", 99, 1700000000000, 2, "", "other", 3307, consumed=True, part=2)


def test_several_sources() -> None:
    """The other sources have a key of their own; the rest is the text of the first source alone, with its number."""
    both = FIRST.beside([SECOND, FIRST])
    text = both.to_json(with_type=True)
    assert text.startswith(CANAL.partition('"postion"')[0] + '"others":[{"identity":')
    assert text.endswith('"part":1,"postion":' + CANAL.partition('"postion":')[2])
    assert LogPosition.from_json(text) == both
    assert (both.of(1), both.of(2), both.of(3)) == (FIRST, SECOND, None)
    assert both.parts == SECOND.beside([FIRST]).parts == (FIRST, SECOND)
    assert str(both) == "1/mysql-bin.000001:2034, 2/bin.000007:99"


def test_an_edit_moves_one_of_several_sources() -> None:
    """A changed offset in the text moves the first source only."""
    text = FIRST.beside([SECOND]).to_json(with_type=True).replace('"position":2034', '"position":4')
    assert LogPosition.from_json(text).parts == (replace(FIRST, offset=4), SECOND)


def test_covering() -> None:
    """Positions of several sources are compared source by source."""
    ahead, behind = replace(FIRST, offset=3000), replace(SECOND, offset=50)
    both, mixed = FIRST.beside([SECOND]), ahead.beside([behind])
    assert both.covers(both)
    assert not both.covers(mixed)
    assert not mixed.covers(both)
    assert ahead.beside([SECOND]).covers(both)
