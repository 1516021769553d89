"""The state of a snapshot: its text, and which progress may take its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from canal_ha.errors import SnapshotRefused
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import (
    MOST_CHARACTERS,
    SnapshotAction,
    SnapshotPhase,
    SnapshotRange,
    SnapshotRequest,
    SnapshotState,
    advanced,
    changed,
    failed,
    told,
)

BEGUN = SnapshotState("a1", ("shop.orders", "shop.größe"), {"shop.orders": "id < 'x'"}, began_ms=5)


WHOLE = SnapshotRange(0)


def test_the_text_holds_the_state() -> None:
    """No text is no snapshot."""
    ranges = (SnapshotRange(1, ("7", "é"), ("9", "a")), SnapshotRange(1, ("9", "a")))
    state = replace(BEGUN, table=1, ranges=ranges, chunks=3, rows=2500, total=9000, connections=4, rows_per_s_most=9)
    assert SnapshotState.from_text(state.text) == state
    assert SnapshotState.from_text("") is None


def test_nobody_is_told_the_key_of_a_row() -> None:
    """A client may see the column hashed, and a status is for everybody with the destination."""
    state = replace(BEGUN, ranges=(SnapshotRange(0, ("email=0x61",)),), rows=3)
    assert "0x61" not in str(state.facts())
    assert SnapshotState.from_text(told(state.text)) == replace(BEGUN, rows=3, where={})
    parts = replace(state, ranges=(*state.ranges, SnapshotRange(1, (), ("email=0x62",))))
    assert "0x6" not in str(parts.facts())
    assert parts.facts()["reading"] == BEGUN.tables
    assert SnapshotState.from_text(told(parts.text)) == replace(BEGUN, rows=3, where={})
    assert (told(""), told("{")) == ("", "")


def test_the_text_of_an_earlier_version_is_read() -> None:
    """It had the key of one range, and no key before the first chunk of a table."""
    old = '{"id":"a1","tables":["shop.a","shop.b"],"where":{},"phase":"running","table":1,"key":["id=7"],"chunks":3}'
    state = SnapshotState("a1", ("shop.a", "shop.b"), table=1, ranges=(SnapshotRange(1, ("id=7",)),), chunks=3)
    assert SnapshotState.from_text(old) == state
    assert SnapshotState.from_text(old.replace('["id=7"]', "[]")) == replace(state, ranges=())


def test_ranges_end_a_table_together() -> None:
    """Tables begin in their order and end in any order; what is left of those that have begun is in the ranges."""
    state = BEGUN.begin_table().begin_table()
    first, second = state.ranges
    parts = (replace(first, until=("5",)), replace(first, after=("5",)))
    state = state.put(first, parts)
    assert (state.table, state.begun) == (0, 2)
    state = state.behind(parts[0], 9)
    assert state.ranges == (parts[1], second)
    state = state.behind(second, 9)
    assert (state.table, state.begun, state.phase) == (1, 2, SnapshotPhase.RUNNING)
    state = state.behind(parts[1], 9)
    assert (state.table, state.begun, state.ranges, state.phase) == (2, 2, (), SnapshotPhase.DONE)


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "[]",
        "{",
        "{}",
        '{"id":"a","tables":[1],"phase":"running"}',
        BEGUN.text.replace("running", "walking"),
        BEGUN.text.replace('"key":[]', '"ranges":[{"table":0}]'),
    ],
)
def test_a_text_that_somebody_damaged_is_a_value_error(text: str) -> None:
    """A caller can name the cursor that holds it."""
    with pytest.raises(ValueError, match="not the state of a snapshot"):
        SnapshotState.from_text(text)


def test_a_state_is_bounded() -> None:
    """Each write of the cursor contains it."""
    with pytest.raises(ValueError, match="65536"):
        replace(BEGUN, where={"shop.orders": "x" * MOST_CHARACTERS}).text  # noqa: B018  # it raises


def test_a_snapshot_that_begins_has_room_for_a_key_and_an_error() -> None:
    """Beyond the bound its thread would end, and leave it running for ever without a reason."""
    tables = tuple(f"shop.{number:040}" for number in range(1300))
    replace(BEGUN, tables=tables).text  # noqa: B018  # it fits as it is
    with pytest.raises(SnapshotRefused, match="take fewer tables at a time"):
        changed("", SnapshotRequest(SnapshotAction.START, tables), "id1", 5)
    begun = changed("", SnapshotRequest(SnapshotAction.START, tables[:900]), "id1", 5)
    largest = replace(begun, ranges=(SnapshotRange(0, ("key=0x" + "61" * 3072,)),), error="x" * 8000)
    assert SnapshotState.from_text(largest.text) == largest


def test_progress_moves_forward_only() -> None:
    """An ACK may be of a batch of an earlier snapshot, or of an earlier feed."""
    two, three = replace(BEGUN, chunks=2), replace(BEGUN, chunks=3)
    assert advanced(two.text, three.text) == three.text
    assert advanced(three.text, two.text) == three.text
    assert advanced(three.text, replace(two, id="b", chunks=9).text) == three.text
    assert advanced("", three.text) == ""
    assert advanced(three.text, "") == three.text
    assert advanced(three.text, "{") == three.text


def test_an_error_keeps_what_is_acknowledged() -> None:
    """A snapshot that is resumed after an error must not skip the chunks that the client has not acknowledged."""
    stored, ahead = (replace(BEGUN, chunks=number, ranges=(SnapshotRange(0, (f"id={number}",)),)) for number in (2, 9))
    end = ahead.ended(SnapshotPhase.FAILED, 77, "no table")
    assert failed(stored.text, end.text) == stored.ended(SnapshotPhase.FAILED, 77, "no table").text
    cancelled = stored.ended(SnapshotPhase.CANCELLED, 70)
    assert failed(cancelled.text, end.text) == cancelled.text
    assert failed(replace(stored, id="b").text, end.text) == replace(stored, id="b").text
    assert failed("", end.text) == ""
    assert failed("{", end.text) == "{"


def test_a_table_that_is_gone_begins_again_after_an_error() -> None:
    """What the client has acknowledged of it is of another table than the one that may have its name later."""
    stored = SnapshotState("a", ("s.t", "s.u"), ranges=(SnapshotRange(0, ("id=3",)), SnapshotRange(1, ("id=7",))))
    first = failed(stored.text, stored.begin_again(0, now_ms=5).ended(SnapshotPhase.FAILED, 77, "no table").text)
    again = SnapshotState.from_text(first)
    assert again is not None
    assert set(again.ranges) == {SnapshotRange(0), SnapshotRange(1, ("id=7",))}
    one = SnapshotState("a", ("s.t", "s.u"), ranges=(SnapshotRange(0, ("id=3",)),))
    end = one.begin_again(0, now_ms=5).ended(SnapshotPhase.FAILED, 77, "no")
    alone = SnapshotState.from_text(failed(one.text, end.text))
    assert alone is not None
    assert alone.ranges == ()


def test_chunks_acknowledged_after_an_error_do_not_undo_the_new_beginning_of_a_table() -> None:
    """They were on their way when the table was found gone. The table that has its name later has other rows."""
    ranges = (SnapshotRange(0, ("id=3",)), SnapshotRange(1, ("id=7",)))
    for begun in ranges[:1], ranges, ():
        stored = SnapshotState("a", ("s.t", "s.u"), ranges=begun)
        begun_again = replace(stored, ranges=ranges, chunks=9).begin_again(0, now_ms=5)
        end = begun_again.ended(SnapshotPhase.FAILED, 77, "no table")
        failure = failed(stored.text, end.text)
        for chunks in (5, 6):
            coming = (SnapshotRange(0, (f"id={chunks}",)), SnapshotRange(1, (f"id={chunks + 4}",)))
            failure = advanced(failure, replace(stored, ranges=coming, chunks=chunks).text)
        after = SnapshotState.from_text(failure)
        assert after is not None
        assert (after.phase, after.chunks) == (SnapshotPhase.FAILED, 6)
        assert SnapshotRange(0) in after.ranges
        assert SnapshotRange(1, ("id=10",)) in after.ranges
        # a batch of before the resume
        resumed = changed(failure, SnapshotRequest(SnapshotAction.RESUME), "", 0)
        last = replace(stored, ranges=(SnapshotRange(0, ("id=8",)),), chunks=8)
        assert '"id=8"' not in advanced(resumed.text, last.text, read_again=True)


def test_a_table_that_ends_after_an_error_is_not_read_again() -> None:
    """Its last chunk was on its way when another table failed."""
    stored = SnapshotState("a", ("s.t", "s.u"))
    failure = failed(stored.text, replace(stored, table=1, chunks=2).ended(SnapshotPhase.FAILED, 7, "no key").text)
    after = SnapshotState.from_text(advanced(failure, replace(stored, table=1, chunks=2).text))
    assert after is not None
    assert (after.phase, after.table, after.ranges) == (SnapshotPhase.FAILED, 1, ())


def test_a_new_beginning_counts_whatever_the_snapshot_does_when_it_is_acknowledged() -> None:
    """The batch has the statement behind it, too. Its progress does not count if the snapshot has other tables now."""
    begun = SnapshotState("a", ("s.t", "s.u"), table=1, ranges=(SnapshotRange(1, ("id=7",)),), chunks=4)
    in_batch = begun.begin_again(0, now_ms=5)
    assert in_batch.table == 0
    for text in (
        begun.ended(SnapshotPhase.FAILED, 7, "no table").text,
        replace(begun, phase=SnapshotPhase.PAUSED).text,
        replace(begun, ranges=(SnapshotRange(1, ("id=9",)),), chunks=5).text,
    ):
        after = SnapshotState.from_text(advanced(text, in_batch.text, read_again=True))
        assert after is not None
        assert after.remaining == begun.tables
        assert after.phase is SnapshotState.from_text(text).phase  # type: ignore[union-attr]  # it is a state
    added = changed(begun.text, SnapshotRequest(SnapshotAction.ADD, ("s.v",)), "b", 9)
    of_u = SnapshotState.from_text(advanced(added.text, begun.begin_again(1, now_ms=5).text, read_again=True))
    assert of_u is not None
    assert (of_u.id, of_u.ranges) == ("b", ())
    assert added.ranges == (SnapshotRange(1, ("id=7",)),)
    left = changed(begun.text, SnapshotRequest(SnapshotAction.RESUME, leave_out=("s.u",)), "c", 9)
    assert advanced(left.text, begun.begin_again(1, now_ms=5).text, read_again=True) == left.text


def test_a_new_beginning_is_no_matter_of_a_snapshot_that_is_over() -> None:
    """It was read before the statement, or nobody wants it any more."""
    begun = SnapshotState("a", ("s.t",), ranges=(SnapshotRange(0, ("id=7",)),), chunks=4)
    over = replace(begun, table=1, ranges=(), chunks=5).ended(SnapshotPhase.DONE, 9)
    assert advanced(over.text, begun.begin_again(0, now_ms=5).text, read_again=True) == over.text


def test_an_ack_of_a_batch_from_a_pause_pauses_no_snapshot_that_was_resumed() -> None:
    """The stream of the paused one has seen a table begin again."""
    begun = SnapshotState("a", ("s.t",), ranges=(SnapshotRange(0, ("id=7",)),), chunks=4)
    paused = replace(begun, phase=SnapshotPhase.PAUSED).begin_again(0, now_ms=5)
    after = SnapshotState.from_text(advanced(begun.text, paused.text, read_again=True))
    assert after is not None
    assert (after.phase, after.remaining, after.ranges) == (SnapshotPhase.RUNNING, ("s.t",), ())


def test_a_table_that_was_read_and_begins_again_is_told_from_others_in_the_text() -> None:
    """Others between it and the ones that are left are read."""
    tables = ("s.a", "s.b", "s.c", "s.d")
    state = SnapshotState("a", tables, table=2, ranges=(SnapshotRange(2, ("id=7",)),)).begin_again(0, 3, now_ms=5)
    again = SnapshotState.from_text(state.text)
    assert again == state
    assert (again.remaining, again.begun) == (("s.a", "s.c", "s.d"), 3)
    assert [again.beginning(table) for table in tables] == [5, 0, 0, 5]
    assert "beginnings" not in told(state.text)
    assert "beginnings" not in state.facts()


def test_an_ack_ends_no_pause() -> None:
    """The batch was read before somebody paused the snapshot."""
    paused = replace(BEGUN, phase=SnapshotPhase.PAUSED)
    after = SnapshotState.from_text(advanced(paused.text, replace(BEGUN, chunks=1, rows=10).text))
    assert after is not None
    assert (after.phase, after.chunks, after.rows) == (SnapshotPhase.PAUSED, 1, 10)


def test_a_cursor_carries_the_state() -> None:
    """It is an object in the cursor's JSON, which operators can read. A damaged one is named."""
    cursor = LogPosition("mysql-bin.000001", 4, snapshot=BEGUN.text)
    text = cursor.to_json(with_type=True)
    assert '"snapshot":{"id":"a1","tables":["shop.orders"' in text
    assert LogPosition.from_json(text).snapshot == BEGUN.text
    assert "snapshot" not in LogPosition("mysql-bin.000001", 4).to_json(with_type=True)
    with pytest.raises(ValueError, match="`snapshot` of a position must be a JSON object"):
        LogPosition.from_json(text.replace('"snapshot":{', '"snapshot":7,"x":{'))


def asked(action: SnapshotAction, stored: SnapshotState | None) -> SnapshotPhase:
    tables = ("shop.orders",) if action in (SnapshotAction.START, SnapshotAction.ADD) else ()
    return changed(stored.text if stored else "", SnapshotRequest(action, tables), "new", 9).phase


def test_what_can_be_asked_in_each_phase() -> None:
    """A snapshot that runs is paused, resumed and cancelled; one that failed is resumed; one that ended makes room."""
    states = {phase: replace(BEGUN, phase=phase) for phase in SnapshotPhase}
    running, paused, done, failed, cancelled = states.values()
    possible: dict[SnapshotAction, list[SnapshotState | None]] = {
        SnapshotAction.START: [None, done, failed, cancelled],
        SnapshotAction.ADD: [None, running, done, failed, cancelled],
        SnapshotAction.PAUSE: [running, paused],
        SnapshotAction.RESUME: [running, paused, failed],
        SnapshotAction.CANCEL: [running, paused, failed],
    }
    leads_to = ("running", "running", "paused", "running", "cancelled")
    for (action, good), phase in zip(possible.items(), leads_to, strict=True):
        for state in (None, *states.values()):
            if (action, state) == (SnapshotAction.ADD, paused):
                assert asked(action, state) is SnapshotPhase.PAUSED
            elif state in good:
                assert asked(action, state).value == phase
            else:
                with pytest.raises(SnapshotRefused):
                    asked(action, state)


def test_tables_are_added_behind_what_is_left() -> None:
    """They are read from their first row. No ACK of what was before replaces the new state."""
    tables = ("a.a", "a.b", "a.c", "a.e")
    parts = (SnapshotRange(1, ("id=7",), ("id=9",)), SnapshotRange(1, ("id=9",)), SnapshotRange(2, ("id=3",)))
    at_second = replace(BEGUN, tables=tables, where={"a.b": "x"}, table=1, ranges=parts, chunks=3)
    added = changed(at_second.text, SnapshotRequest(SnapshotAction.ADD, ("a.a", "a.d")), "new", 9)
    assert (added.tables, added.table, added.begun) == (("a.b", "a.c", "a.e", "a.a", "a.d"), 0, 2)
    assert added.ranges == tuple(replace(part, table=part.table - 1) for part in parts)
    assert (added.where, added.chunks) == ({"a.b": "x"}, 3)
    assert advanced(added.text, replace(at_second, chunks=4).text) == added.text
    again = changed(at_second.text, SnapshotRequest(SnapshotAction.ADD, ("a.b",)), "new", 9)
    assert (again.tables, again.table, again.where) == (("a.a", "a.c", "a.e", "a.b"), 1, {})
    assert again.ranges == (SnapshotRange(1, ("id=3",)),)
    ended = replace(at_second, table=2, ranges=parts[:2])  # the third table ended before the second one
    behind = changed(ended.text, SnapshotRequest(SnapshotAction.ADD, ("a.d",)), "new", 9)
    assert (behind.tables, behind.table, behind.begun) == (("a.a", "a.c", "a.b", "a.e", "a.d"), 2, 3)
    assert behind.remaining == ("a.b", "a.e", "a.d")


@pytest.mark.parametrize("phase", [SnapshotPhase.RUNNING, SnapshotPhase.PAUSED, SnapshotPhase.FAILED])
def test_a_table_that_was_read_begins_again_also_behind_an_addition(phase: SnapshotPhase) -> None:
    """Another one may take its name before the client has the end of the snapshot."""
    begun = SnapshotState("a", ("s.t", "s.u", "s.v"), {"s.t": "x"}, phase, table=2, beginnings={"s.t": 1, "s.u": 2})
    added = changed(begun.text, SnapshotRequest(SnapshotAction.ADD, ("s.w", "s.u"), {"s.u": "y"}), "b", 9)
    assert (added.table, added.tables[:1]) == (1, ("s.t",))
    assert set(added.remaining) == {"s.u", "s.v", "s.w"}
    assert (added.where, added.beginnings) == ({"s.t": "x", "s.u": "y"}, begun.beginnings)
    after = SnapshotState.from_text(advanced(added.text, begun.begin_again(0, now_ms=5).text, read_again=True))
    assert after is not None
    assert set(after.remaining) == set(after.tables)


def test_tables_that_are_read_make_an_addition_too_large() -> None:
    """If one were forgotten, nobody would read the rows of another table that takes its name."""
    tables = tuple(f"shop.{number:040}" for number in range(900))
    begun = replace(changed("", SnapshotRequest(SnapshotAction.START, tables), "a", 5), table=899)
    more = SnapshotRequest(SnapshotAction.ADD, tuple(f"more.{number:040}" for number in range(900)))
    with pytest.raises(SnapshotRefused, match="Or cancel snapshot a first, or wait for its end"):
        changed(begun.text, more, "b", 9)
    again = changed(begun.text, SnapshotRequest(SnapshotAction.ADD, tables[:9]), "b", 9)
    assert (again.table, len(again.tables)) == (890, 900)
    assert changed(begun.ended(SnapshotPhase.DONE, 6).text, more, "b", 9).tables == more.tables


@pytest.mark.parametrize("phase", [SnapshotPhase.PAUSED, SnapshotPhase.FAILED])
def test_nobody_is_told_to_wait_for_a_snapshot_that_does_not_run(phase: SnapshotPhase) -> None:
    """Its end never comes by itself."""
    tables = tuple(f"shop.{number:040}" for number in range(900))
    begun = replace(changed("", SnapshotRequest(SnapshotAction.START, tables), "a", 5), table=899, phase=phase)
    more = SnapshotRequest(SnapshotAction.ADD, tuple(f"more.{number:040}" for number in range(900)))
    with pytest.raises(SnapshotRefused, match="Or cancel snapshot a first, or resume it and wait for its end"):
        changed(begun.text, more, "b", 9)


def test_a_damaged_state_can_be_replaced() -> None:
    """A new snapshot begins; nothing else can be done."""
    start = SnapshotRequest(SnapshotAction.START, ("shop.orders",))
    assert changed("{}", start, "new", 9) == SnapshotState("new", ("shop.orders",), began_ms=9)


# ---- tables without a key


def test_an_attempt_begins_its_table_again() -> None:
    """Rows of the attempt before do not count any more, and no number comes twice, whatever the clock says."""
    state = replace(BEGUN, rows=100, chunks=4, without_key=True).begin_table()
    first = state.new_attempt(WHOLE, 5000)
    broken = first.with_piece(30).with_piece(20)
    assert (broken.rows, broken.chunks, broken.attempt, broken.attempt_rows) == (150, 6, 5000, 50)
    assert broken.piece_id(2) == "a1.5000.2"
    second = broken.new_attempt(WHOLE, 4000)
    assert (second.rows, second.chunks, second.attempt, second.attempt_rows) == (100, 6, 5001, 0)
    behind = second.with_piece(60).behind(WHOLE, 9).begin_table()
    assert (behind.rows, behind.table, behind.attempt_rows, behind.phase) == (160, 1, 0, SnapshotPhase.RUNNING)
    assert behind.new_attempt(SnapshotRange(1), 6000).rows == 160
    assert behind.without_attempt().attempt == 0
    assert (broken.without_attempt().rows, broken.without_attempt().attempt_rows) == (100, 0)
    end = behind.behind(SnapshotRange(1), 9)
    assert (end.phase, end.ended_ms) == (SnapshotPhase.DONE, 9)


def test_an_older_node_reads_the_state_of_tables_with_keys() -> None:
    """Fields that it does not know are there only if they say something."""
    assert "attempt" not in BEGUN.text
    assert "without_key" not in BEGUN.text
    assert "rows_per_s_most" not in BEGUN.text
    assert "connections" not in BEGUN.text
    begun = replace(BEGUN, without_key=True, rows_per_s_most=9).new_attempt(WHOLE, 7)
    assert SnapshotState.from_text(begun.text) == replace(begun, ranges=())
    one = replace(BEGUN, table=1, ranges=(SnapshotRange(1, ("id=7",)),))
    assert '"key":["id=7"]' in one.text
    assert "ranges" not in one.text
    assert SnapshotState.from_text(one.text) == one
    for ranges in (SnapshotRange(1, ("7",), ("9",)),), (SnapshotRange(0, ("7",)), SnapshotRange(1)):
        assert '"key"' not in replace(one, ranges=ranges).text


def test_progress_of_a_broken_attempt_does_not_count_beside_the_next_one() -> None:
    """The client may acknowledge its last batches while a new feed reads the table from its first row again."""
    attempt = replace(BEGUN, without_key=True).begin_table().new_attempt(WHOLE, 7)
    acknowledged = attempt.with_piece(5)
    over = acknowledged.with_piece(5).behind(WHOLE, 9)
    assert advanced(acknowledged.text, over.text) == over.text
    assert advanced(acknowledged.text, over.text, read_again=True) == acknowledged.text
    next_table = replace(over.without_attempt(), chunks=over.chunks + 1)
    assert advanced(acknowledged.text, next_table.text, read_again=True) == acknowledged.text
    keyed = replace(BEGUN, chunks=1)
    assert advanced(BEGUN.text, keyed.text, read_again=True) == keyed.text


def test_a_table_counts_more_than_chunks() -> None:
    """A feed that reads a table again may need fewer chunks for it."""
    long, behind = replace(BEGUN, chunks=9), replace(BEGUN, table=1, chunks=3)
    assert advanced(long.text, behind.text) == behind.text
    assert advanced(behind.text, long.text) == behind.text


def test_limits_stay_with_the_snapshot() -> None:
    """Adding tables keeps them."""
    begun = changed("", SnapshotRequest(SnapshotAction.START, ("a.b",), connections=4, rows_per_s_most=5), "x", 1)
    added = changed(begun.text, SnapshotRequest(SnapshotAction.ADD, ("a.c",)), "y", 1)
    for state in (begun, added):
        assert (state.connections, state.rows_per_s_most) == (4, 5)


def test_tables_without_a_key_are_allowed_at_the_start_or_later() -> None:
    """A snapshot that failed because of one is resumed with the permission, which it keeps."""
    request = SnapshotRequest(SnapshotAction.START, ("a.b",), without_key=True)
    assert changed("", request, "x", 1).without_key
    failed_one = replace(BEGUN, phase=SnapshotPhase.FAILED)
    resumed = changed(failed_one.text, SnapshotRequest(SnapshotAction.RESUME, without_key=True), "", 1)
    assert resumed.without_key
    paused = changed(resumed.text, SnapshotRequest(SnapshotAction.PAUSE), "", 1)
    assert changed(paused.text, SnapshotRequest(SnapshotAction.RESUME), "", 1).without_key


def test_tables_added_to_a_broken_attempt_count_its_rows_no_more() -> None:
    """The table without a key begins again, whether it comes first or behind others. The permission stays."""
    state = replace(BEGUN, rows=10, without_key=True).new_attempt(WHOLE, 7).with_piece(5)
    for tables in (("a.b",), BEGUN.tables[:1]):
        request = SnapshotRequest(SnapshotAction.ADD, tables)
        added = changed(state.text, request, "new", 9)
        assert (added.rows, added.attempt_rows, added.without_key) == (10, 0, True)
        assert added.new_attempt(WHOLE, 3).attempt == 8
    allowing = SnapshotRequest(SnapshotAction.ADD, ("a.b",), without_key=True)
    assert changed(BEGUN.text, allowing, "new", 9).without_key


def test_tables_added_to_a_failed_snapshot_do_not_hide_what_it_has_left() -> None:
    """The added ones come first, because the others may fail again."""
    state = replace(BEGUN, tables=("a.a", "a.b", "a.c"), table=1, where={"a.c": "x"})
    state = replace(state, ranges=(SnapshotRange(1, ("id=1",)), SnapshotRange(2, ("id=5",))))
    state = state.ended(SnapshotPhase.FAILED, 5, "no right")
    added = changed(state.text, SnapshotRequest(SnapshotAction.ADD, ("a.d", "a.b")), "new", 9)
    assert (added.tables, added.table, added.ranges) == (("a.a", "a.d", "a.b", "a.c"), 1, ())
    assert (added.phase, added.error, added.ended_ms, added.where) == (SnapshotPhase.RUNNING, "", 0, {"a.c": "x"})


def test_a_state_without_room_can_still_fail() -> None:
    """Else a snapshot whose next key has no room would look as if it ran."""
    free = MOST_CHARACTERS - len(replace(BEGUN, tables=("a.",)).text)
    full = replace(BEGUN, tables=("a." + "b" * free,))
    assert len(full.text) == MOST_CHARACTERS
    with pytest.raises(ValueError, match="characters"):
        replace(full, ranges=(SnapshotRange(0, ("id=1",)),)).text  # noqa: B018  # it raises
    end = full.ended(SnapshotPhase.FAILED, 9, "no room")
    stored = SnapshotState.from_text(failed(full.text, end.text))
    assert stored is not None
    assert stored.error == "no room"


def test_a_failed_snapshot_goes_on_without_a_table_that_it_has_not_read() -> None:
    """Its tables, parts and conditions move up, and the state tells what is missing."""
    tables = ("a.a", "a.b", "a.c", "a.d")
    begun = changed("", SnapshotRequest(SnapshotAction.START, tables, {"a.b": "id > 1", "a.d": "id > 2"}), "x", 1)
    parts = (SnapshotRange(1, ("id=3",)), SnapshotRange(2, ("id=7",)))
    failed_one = replace(begun, phase=SnapshotPhase.FAILED, table=1, ranges=parts, rows=9, ended_ms=5, error="gone")
    resumed = changed(failed_one.text, SnapshotRequest(SnapshotAction.RESUME, leave_out=("a.b", "a.d")), "new", 9)
    assert (resumed.id, resumed.phase, resumed.error) == ("new", SnapshotPhase.RUNNING, "")
    assert (resumed.tables, resumed.table, resumed.remaining) == (("a.a", "a.c"), 1, ("a.c",))
    assert resumed.ranges == (SnapshotRange(1, ("id=7",)),)
    assert (resumed.where, resumed.rows, resumed.left_out) == ({}, 9, ("a.b", "a.d"))
    assert SnapshotState.from_text(resumed.text) == resumed
    assert resumed.facts()["left_out"] == ("a.b", "a.d")


def test_the_last_table_of_a_snapshot_can_be_left_out() -> None:
    """Nothing is left to read then, and the snapshot ends."""
    failed_one = replace(BEGUN, phase=SnapshotPhase.FAILED, table=1)
    resumed = changed(failed_one.text, SnapshotRequest(SnapshotAction.RESUME, leave_out=("shop.größe",)), "new", 9)
    assert (resumed.tables, resumed.table, resumed.remaining) == (("shop.orders",), 1, ())


@pytest.mark.parametrize("table", ["shop.orders", "shop.unknown"])
def test_a_table_that_is_read_or_unknown_cannot_be_left_out(table: str) -> None:
    """Somebody who misspells the table reads which ones there are."""
    failed_one = replace(BEGUN, phase=SnapshotPhase.FAILED, table=1)
    request = SnapshotRequest(SnapshotAction.RESUME, leave_out=(table,))
    with pytest.raises(SnapshotRefused, match=rf"a1 has not left to read {table}\. It has left to read shop\.gr"):
        changed(failed_one.text, request, "new", 9)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (SnapshotRequest(SnapshotAction.RESUME, rows_per_s_most=5000), "resume does not take rows_per_s_most"),
        (
            SnapshotRequest(SnapshotAction.RESUME, ("shop.orders",)),
            "does not take tables; it takes without_key, leave_",
        ),
        (
            SnapshotRequest(SnapshotAction.PAUSE, leave_out=("shop.orders",)),
            "pause does not take leave_out; it takes no",
        ),
        (SnapshotRequest(SnapshotAction.CANCEL, without_key=True), "cancel does not take without_key"),
        (SnapshotRequest(SnapshotAction.START, ("shop.t",), leave_out=("shop.u",)), "start does not take leave_out"),
    ],
)
def test_a_field_that_an_action_does_not_take_is_refused(request_: SnapshotRequest, why: str) -> None:
    """It was ignored: a snapshot that was resumed with other limits kept its own ones."""
    with pytest.raises(SnapshotRefused, match=why):
        changed(replace(BEGUN, phase=SnapshotPhase.FAILED).text, request_, "new", 9)


@pytest.mark.parametrize("condition", ["", " \n"])
def test_a_blank_condition_is_refused(condition: str) -> None:
    """One read the whole table, and the other one ended the snapshot later."""
    with pytest.raises(SnapshotRefused, match=r"condition for shop\.t is blank"):
        changed("", SnapshotRequest(SnapshotAction.START, ("shop.t",), {"shop.t": condition}), "new", 9)


def test_a_condition_that_is_too_long_is_named() -> None:
    """Somebody who took fewer tables got the same answer."""
    request = SnapshotRequest(SnapshotAction.START, ("shop.t",), {"shop.t": f"id > {'1' * 60_000}"})
    with pytest.raises(SnapshotRefused, match="or shorter conditions"):
        changed("", request, "new", 9)


def test_a_condition_that_is_too_long_is_not_read() -> None:
    """The reactor read 300 KB of it for a third of a second, also if it was no condition at all."""
    request = SnapshotRequest(SnapshotAction.START, ("shop.t",), {"shop.t": "SLEEP(" + "1," * 40_000})
    with pytest.raises(SnapshotRefused, match="or shorter conditions"):
        changed("", request, "new", 9)


def test_a_condition_for_an_endless_name_of_a_table_is_refused_in_a_few_words() -> None:
    """The answer had all of the name, with what steers a terminal."""
    request = SnapshotRequest(SnapshotAction.START, ("shop.t",), {"\x1b[31m" + "x" * 300_000: "id > 1"})
    with pytest.raises(SnapshotRefused) as refused:
        changed("", request, "new", 9)
    assert len(str(refused.value)) < 1000
    assert "\x1b" not in str(refused.value)


def test_a_snapshot_that_leaves_nothing_out_has_a_text_that_older_nodes_read() -> None:
    """They know no such field."""
    assert "left_out" not in BEGUN.text
    out = replace(BEGUN, phase=SnapshotPhase.FAILED, left_out=("a.b", "a.c"))
    added = changed(out.text, SnapshotRequest(SnapshotAction.ADD, ("a.b",)), "new", 9)
    assert added.left_out == ("a.c",)


def test_clients_are_not_told_a_field_that_older_ones_do_not_know() -> None:
    """They would take the state for none, and end before the snapshot does."""
    assert "left_out" not in told(replace(BEGUN, left_out=("a.b",)).text)
