"""Resuming a dump at a boundary, without loss or repeat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.source.positions import resume
from canal_ha.source.positions.resume import Resume
from tests.segments import Item, segment

START = LogPosition("mysql-bin.000001", 100, address="db", gtid="")


def offsets(part: Segment | None) -> list[int]:
    """Return the offsets of the entries that are left of a segment."""
    return [] if part is None else list(part.offsets)


def test_inclusive_start_delivers_the_event_at_it() -> None:
    """A cursor that is not marked as consumed is read inclusively, as in canal."""
    resume = Resume(START)
    assert resume.begin() == START
    assert offsets(resume.new(segment([Item(100, EntryKind.END), Item(200)]))) == [100, 200]


def test_consumed_start_drops_the_event_at_it() -> None:
    """Every entry of an event marked as consumed is dropped, including those of a compressed payload."""
    resume = Resume(LogPosition("mysql-bin.000001", 100, consumed=True))
    assert resume.begin().offset == 100
    assert offsets(resume.new(segment([Item(100, sub=0), Item(100, sub=1)]))) == []
    assert offsets(resume.new(segment([Item(100, sub=2), Item(150)]))) == [150]


def test_a_boundary_that_another_thread_asks_for_keeps_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dump goes on with another position while another thread makes the former one: nothing of both is mixed."""
    moved = replace(START, offset=900, server="uuid of the server", gtid="0-1-9", consumed=True)
    dump = Resume(START)
    dump.passed("mysql-bin.000001", 500)

    def made(**fields: Any) -> LogPosition:
        dump.at = moved
        return LogPosition(**fields)

    with monkeypatch.context() as interrupted:
        interrupted.setattr(resume, "LogPosition", made)
        assert dump.at.offset == 500
    assert dump.at == moved
    dump.passed("mysql-bin.000001", 1000)
    assert (dump.at.offset, dump.at.server) == (1000, "uuid of the server")


def test_pieces_of_a_large_transaction_come_once() -> None:
    """After a break inside a transaction the dump begins at the start of it, and delivered entries are dropped."""
    resume = Resume(START)
    resume.begin()
    resume.delivered(segment([Item(100, EntryKind.BEGIN), Item(200), Item(300)]))
    assert resume.begin().offset == 100
    assert offsets(resume.new(segment([Item(100, EntryKind.BEGIN), Item(200)]))) == []
    assert offsets(resume.new(segment([Item(300), Item(400), Item(500, EntryKind.END)]))) == [400, 500]


def test_a_break_behind_a_statement_leaves_the_boundary_before_it() -> None:
    """`all_before` tells whether a boundary has been passed since the last delivery."""
    for consumed in (False, True):
        resume = Resume(LogPosition("mysql-bin.000001", 100, consumed=consumed))
        found = [resume.all_before]
        resume.delivered(segment([Item(150)]))
        found.append(resume.all_before)
        resume.passed("mysql-bin.000001", 200)
        assert [*found, resume.all_before] == [True, False, True]


def test_the_event_delivered_last_is_known() -> None:
    """Boundaries behind it do not count: what lies between brought no entry."""
    first = LogPosition("mysql-bin.000001", 100, server="one")
    assert Resume(first).last_delivered is None
    resume = Resume(first)
    resume.delivered(segment([Item(150)]))
    resume.passed("mysql-bin.000001", 200)
    assert resume.last_delivered == LogPosition("mysql-bin.000001", 150, consumed=True, server="one")
    start = LogPosition("mysql-bin.000001", 100, consumed=True, server="one")
    assert Resume(start).last_delivered == start


def test_boundaries_move_on() -> None:
    """The next dump begins at the newest boundary or journal that was passed, never at an older one."""
    resume = Resume(START)
    resume.passed("mysql-bin.000001", 500, 1700)
    resume.passed("mysql-bin.000001", 4)
    assert (resume.at.offset, resume.at.timestamp_ms, resume.at.address) == (500, 1700, "db")
    resume.passed("mysql-bin.000002", 4)
    assert (resume.at.journal, resume.at.offset, resume.at.timestamp_ms) == ("mysql-bin.000002", 4, 1700)


def test_gtid_set_follows() -> None:
    """The executed set is kept in the resume position, and stays if a boundary has none."""
    resume = Resume(START)
    resume.passed("mysql-bin.000001", 500, gtid="u:1-7")
    resume.passed("mysql-bin.000002", 4)
    assert resume.at.gtid == "u:1-7"


def test_gtid_set_follows_behind_a_rotation() -> None:
    """The boundary of the ROTATE comes without a set; the transaction before it is in the set that comes next."""
    resume = Resume(LogPosition("mysql-bin.000001", 800, gtid="u:1-7"))
    resume.passed("mysql-bin.000002", 4)
    resume.passed("mysql-bin.000002", 4, 1, "u:1-8")
    assert resume.at.gtid == "u:1-8"


def test_offsets_beyond_32_bits() -> None:
    """The dump command has no such offsets: the journal is read from its beginning, and older entries are dropped."""
    far = 5 * 2**30
    resume = Resume(LogPosition("mysql-bin.000001", far))
    assert resume.begin().offset == 4
    assert offsets(resume.new(segment([Item(100), Item(far - 1, sub=9)]))) == []
    resume.passed("mysql-bin.000001", 200)
    assert resume.at.offset == far
    assert offsets(resume.new(segment([Item(far), Item(far + 10)]))) == [far, far + 10]


def test_consumed_beyond_32_bits() -> None:
    """A consumed event at an offset beyond 32 bits does not come again."""
    far = 5 * 2**30
    resume = Resume(LogPosition("mysql-bin.000001", far, consumed=True))
    assert resume.begin().offset == 4
    assert offsets(resume.new(segment([Item(far), Item(far + 10)]))) == [far + 10]


def test_renamed_binlog_begins_anew() -> None:
    """Journals of another base name are not compared with the old ones."""
    resume = Resume(START)
    resume.delivered(segment([Item(900)], journal="mysql-bin.000009"))
    resume.begin()
    assert offsets(resume.new(segment([Item(4)], journal="binlog.000001"))) == [4]


@given(
    breaks=st.lists(st.integers(0, 60), max_size=6),
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=12),
    piece=st.integers(1, 4),
)
def test_any_breaks(breaks: list[int], sizes: list[int], piece: int) -> None:
    """Every entry is delivered exactly once and in order, whenever the dump breaks."""
    transactions = []
    offset = 100
    for size in sizes:
        transactions.append([offset + 10 * index for index in range(size)])
        offset += 10 * size
    delivered: list[int] = []
    resume = Resume(START)
    for budget in [*breaks, 10**6]:
        begin = resume.begin().offset
        for transaction in transactions:
            if transaction[0] < begin:
                continue
            for first in range(0, len(transaction), piece):
                budget -= 1
                if budget < 0:
                    break
                part = resume.new(segment([Item(at) for at in transaction[first : first + piece]]))
                if part is not None:
                    delivered += part.offsets
                    resume.delivered(part)
            if budget < 0:
                break
            resume.passed("mysql-bin.000001", transaction[-1] + 10)
    assert delivered == [at for transaction in transactions for at in transaction]
