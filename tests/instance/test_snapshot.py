"""Snapshots as an instance sees them: what is refused, and that the state is durable with the client's cursor."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from canal_ha.config.model import DecodeOptions
from canal_ha.errors import FilterInvalid, LocalProtocolError, NotSubscribed, SnapshotRefused
from canal_ha.instance.feed_pace import BEGUN_MOST, BEGUN_S
from canal_ha.instance.one_at_a_time import OneAtATime
from canal_ha.instance.snapshots import Snapshots
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import ANYTHING, ColumnRules, Within
from canal_ha.model.snapshot import (
    MOST_TABLES,
    InitialSnapshot,
    SnapshotAction,
    SnapshotPhase,
    SnapshotRequest,
    SnapshotState,
)
from tests.instance.origin import PlainOrigin
from tests.instance.test_regained import OneNode, rows
from tests.instance.test_stream import now

CLIENT = ClientIdentity("example", 1001)


@pytest.fixture
def node() -> OneNode:
    """Return a node that runs the destination. Its source has shop.orders, shop.items and other.t."""
    made = OneNode()
    made.claim()
    return made


def state(node: OneNode) -> SnapshotState | None:
    cursor = node.instance.meta.cursor(1001)
    return SnapshotState.from_text(cursor.snapshot) if cursor else None


def ask(node: OneNode, action: SnapshotAction, *tables: str) -> SnapshotState:
    return now(node.embedded.change_snapshot("example", 1001, SnapshotRequest(action, tables), ANYTHING))


def test_a_snapshot_belongs_to_a_subscribed_client(node: OneNode) -> None:
    """Without a cursor there is no place for its state."""
    with pytest.raises(NotSubscribed):
        ask(node, SnapshotAction.START, "shop.orders")


def test_a_table_that_the_source_does_not_show_is_refused(node: OneNode) -> None:
    """Nothing has changed then."""
    now(node.embedded.subscribe(CLIENT))
    with pytest.raises(SnapshotRefused, match=r"shows no table shop\.Orders: check the name with its letter case"):
        ask(node, SnapshotAction.START, "shop.orders", "shop.Orders")
    assert state(node) is None


def test_a_table_that_the_clients_filter_drops_is_refused(node: OneNode) -> None:
    """All its rows would be read, and counted, and none would arrive."""
    now(node.embedded.subscribe(replace(CLIENT, filter=r"shop\..*")))
    for action in (SnapshotAction.START, SnapshotAction.ADD):
        with pytest.raises(SnapshotRefused, match=r"no row of other\.t would reach client id 1001"):
            ask(node, action, "shop.orders", "other.t")
    assert state(node) is None
    assert ask(node, SnapshotAction.START, "shop.orders").phase is SnapshotPhase.RUNNING


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (DecodeOptions(filter_rows=True), "canal.instance.filter.rows"),
        (DecodeOptions(filter_dml_insert=True), "canal.instance.filter.dml.insert"),
    ],
)
def test_a_snapshot_of_which_no_row_would_arrive_is_refused(options: DecodeOptions, key: str) -> None:
    """Its rows are inserts. The snapshot ended as done, with all rows counted."""
    node = OneNode(decode=options)
    node.claim()
    with pytest.raises(SnapshotRefused, match=f"because {key} drops inserted rows"):
        now(node.embedded.subscribe(CLIENT, snapshot=InitialSnapshot(("shop.orders",))))
    now(node.embedded.subscribe(CLIENT))
    for action in (SnapshotAction.START, SnapshotAction.ADD):
        with pytest.raises(SnapshotRefused, match=f"because {key} drops inserted rows"):
            ask(node, action, "shop.orders")
    assert state(node) is None


def test_a_table_outside_the_accounts_filter_is_refused(node: OneNode) -> None:
    """The number of its rows, too, is none of the account's business."""
    now(node.embedded.subscribe(replace(CLIENT, within=Within(r"shop\..*"))))
    with pytest.raises(SnapshotRefused, match=r"no row of other\.t would reach"):
        ask(node, SnapshotAction.START, "other.t")


def test_an_account_cannot_learn_which_tables_there_are_outside_its_filter(node: OneNode) -> None:
    """A table that exists and one that does not get the same answer, also beside one that the account may read."""
    within = replace(CLIENT, within=Within(r"shop\.orders"))
    answers = []
    for table in ("other.t", "other.u"):
        with pytest.raises(SnapshotRefused) as refused:
            now(node.embedded.subscribe(within, snapshot=InitialSnapshot(("shop.orders", table))))
        answers.append(str(refused.value).replace(table, "TABLE"))
    assert answers[0] == answers[1]
    now(node.embedded.subscribe(within))
    for table in ("other.t", "other.u"):
        with pytest.raises(SnapshotRefused) as refused:
            ask(node, SnapshotAction.START, "shop.orders", table)
        answers.append(str(refused.value).replace(table, "TABLE"))
    assert answers[2:] == answers[:2]


def refused_to(node: OneNode, within: Within, table: str, where: str = "") -> str:
    """Return the answer to an account that asks for a snapshot of a table and of shop.orders; "" if it begins."""
    conditions = {table: where} if where else {}
    for action in (SnapshotAction.START, SnapshotAction.ADD):
        request = SnapshotRequest(action, ("shop.orders", table), conditions)
        try:
            now(node.embedded.change_snapshot("example", 1001, request, within))
        except SnapshotRefused as refused:
            answer = str(refused)
        else:
            return ""
    return answer


def test_an_admin_cannot_learn_which_tables_there_are_outside_its_filter(node: OneNode) -> None:
    """Also if the client has no filter: the account that asks counts."""
    now(node.embedded.subscribe(CLIENT))
    within = Within(r"shop\..*")
    exists, none = refused_to(node, within, "other.t"), refused_to(node, within, "other.u")
    assert "other.t is outside the filter of the account that asks" in exists
    assert exists.replace("other.t", "TABLE") == none.replace("other.u", "TABLE")
    assert "shows no table shop.u" in refused_to(node, within, "shop.u")
    assert refused_to(node, within, "shop.items") == ""


def test_an_admin_can_neither_see_nor_leave_out_tables_outside_its_filter(node: OneNode) -> None:
    """It took them out of another client's snapshot, and the answer to a wrong name listed them."""
    now(node.embedded.subscribe(CLIENT))
    ask(node, SnapshotAction.START, "other.t", "shop.orders", "shop.items")
    answers = []
    for table in ("other.t", "other.u", "shop.u"):
        request = SnapshotRequest(SnapshotAction.RESUME, leave_out=("shop.orders", table))
        with pytest.raises(SnapshotRefused) as refused:
            now(node.embedded.change_snapshot("example", 1001, request, Within(r"shop\..*")))
        answers.append(str(refused.value))
    assert answers[0].replace("other.t", "TABLE") == answers[1].replace("other.u", "TABLE")
    assert "other.t is outside the filter of the account that asks" in answers[0]
    assert "has not left to read shop.u. It has left to read shop.orders, shop.items" in answers[2]
    assert (found := state(node))
    assert found.tables == ("other.t", "shop.orders", "shop.items")
    request = SnapshotRequest(SnapshotAction.RESUME, leave_out=("shop.items",))
    left = now(node.embedded.change_snapshot("example", 1001, request, Within(r"shop\..*")))
    assert left.tables == ("other.t", "shop.orders")


def test_an_admin_cannot_count_the_rows_by_a_column_that_is_hidden_from_it(node: OneNode) -> None:
    """Nothing is hidden from the client, so only the account that asks tells."""
    now(node.embedded.subscribe(CLIENT))
    within = Within(privacy=ColumnRules(mask=r"shop\.it.*:email", hash=r"shop\.items:phone"))
    for condition in ("id > 5 AND Email < 'm'", "`phone` = 1", "_rowid < 5", "ema\u0131l = 'x'"):
        assert "which may be a column that the account that asks does not see" in refused_to(
            node, within, "shop.items", condition
        )
    assert state(node) is None
    assert refused_to(node, within, "other.t", "email < 'm'") == ""
    now(node.embedded.change_snapshot("example", 1001, SnapshotRequest(SnapshotAction.CANCEL), within))
    assert refused_to(node, within, "shop.items", "id > 5 AND name = 'email'") == ""


class ManyTables(PlainOrigin):
    """A source with 50,000 tables that counts how often it is asked for them."""

    asked = 0

    def __init__(self) -> None:
        pass

    def tables(self) -> list[tuple[str, str]]:
        self.asked += 1
        return [(f"t{number // 20:04}", f"u{number % 20:02}") for number in range(50_000)]


def test_thousands_of_named_tables_do_not_block_the_reactor(node: OneNode) -> None:
    """Neither beside 50,000 tables of the source. More than MOST_TABLES, and no tables, are refused before it is asked.

    One packet held the reactor for three seconds.
    """
    origin, in_pool_s = ManyTables(), 0.0

    def pool(call: Callable[[], Any], /) -> Deferred[Any]:
        nonlocal in_pool_s
        began = time.thread_time()
        result = call()
        in_pool_s += time.thread_time() - began
        return succeed(result)

    snapshots = Snapshots(node.instance.config, origin, pool, OneAtATime(Clock()))
    names = [f"s.{number}" for number in range(MOST_TABLES + 1)]
    for tables, why in ((names, "5001 tables"), ([*names[:9], "x"], "x is no table"), (["a." + 200 * "b"], "no table")):
        with pytest.raises(SnapshotRefused, match=why):
            now(snapshots.initial(CLIENT, InitialSnapshot(tuple(tables))))
    assert origin.asked == 0
    existing = [f"{schema}.{table}" for schema, table in origin.tables()[: MOST_TABLES // 2]]
    wanted = InitialSnapshot((*existing, *names[: MOST_TABLES // 2]))
    began = time.thread_time()
    with pytest.raises(SnapshotRefused, match="take fewer tables"):
        now(snapshots.initial(CLIENT, wanted))
    assert time.thread_time() - began - in_pool_s < 0.1


def test_requests_for_snapshots_take_one_thread_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that hangs would take all threads, and other destinations need them. A client may go meanwhile."""
    held: list[Callable[[], None]] = []
    slow = False

    def pool(call: Callable[[], Any], /) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        held.append(lambda: done.callback(call()))
        if not slow:
            held.pop()()
        return done

    monkeypatch.setattr("tests.instance.test_regained.blocking", pool)
    node = OneNode()
    node.claim()
    for client_id in (1001, 1002, 1003):
        now(node.embedded.subscribe(replace(CLIENT, client_id=client_id)))
    slow = True
    request = SnapshotRequest(SnapshotAction.START, ("shop.orders",))
    answers: list[object] = []
    for client_id in (1001, 1002, 1003):
        asked = Deferred.fromCoroutine(node.embedded.change_snapshot("example", client_id, request, ANYTHING))
        asked.addCallbacks(lambda state: answers.append(state.phase), lambda failure: answers.append(failure.type))
    assert len(held) == 1
    slow = False
    now(node.embedded.unsubscribe(replace(CLIENT, client_id=1001)))
    held.pop()()
    assert sorted(map(str, answers)) == sorted(map(str, [NotSubscribed, *[SnapshotPhase.RUNNING] * 2]))


class Dotted(PlainOrigin):
    """A source with schemas whose names have dots."""

    def tables(self) -> list[tuple[str, str]]:
        return [("we.ird", "t"), ("we", "ird.t"), ("a.b", "c")]


def test_a_table_of_a_schema_with_a_dot_is_not_taken_for_another_one(node: OneNode) -> None:
    """`we.ird`.`t` was read as `we`.`ird.t`, whose rows nobody had asked for."""
    now(node.embedded.subscribe(CLIENT))
    node.instance._snapshots._origin = Dotted(node.instance._origin.view, node.instance._origin.open_feed)
    with pytest.raises(SnapshotRefused, match=r"a\.b\.c: the name of the schema has a dot"):
        ask(node, SnapshotAction.START, "a.b.c")
    assert ask(node, SnapshotAction.START, "we.ird.t").tables == ("we.ird.t",)


def test_the_state_survives_the_node(node: OneNode) -> None:
    """It is durable when the request is answered, without a flush. ACKs of the binlog's batches keep it."""
    now(node.embedded.subscribe(CLIENT))
    begun = ask(node, SnapshotAction.START, "shop.orders")
    assert begun.phase is SnapshotPhase.RUNNING
    node.lose()
    node.claim()
    assert state(node) == begun
    message = now(node.embedded.get(CLIENT, GetRequest(100, 0.0)))
    now(node.embedded.ack(CLIENT, message.batch_id))
    assert state(node) == begun
    assert ask(node, SnapshotAction.PAUSE).phase is SnapshotPhase.PAUSED
    node.lose()
    node.claim()
    assert state(node) == replace(begun, phase=SnapshotPhase.PAUSED)


def test_an_ack_after_a_request_for_a_snapshot_counts_and_is_not_refused(node: OneNode) -> None:
    """The Java client would take an error for the reply to its next request. The batch in flight comes again."""
    now(node.embedded.subscribe(CLIENT))
    sent = now(node.embedded.get(CLIENT, GetRequest(1, 0.0)))
    ask(node, SnapshotAction.START, "shop.orders")
    now(node.embedded.ack(CLIENT, sent.batch_id))
    assert node.passed(1001) == rows(sent)
    assert rows(now(node.embedded.get(CLIENT, GetRequest(1, 0.0)))) == rows(sent)


def test_the_first_subscription_can_begin_with_the_existing_rows(node: OneNode) -> None:
    """The state is in the first cursor. `*` stands for the tables that the filter keeps. Later it changes nothing."""
    client = replace(CLIENT, filter=r"shop\..*")
    now(node.embedded.subscribe(client, snapshot=InitialSnapshot(("*",))))
    first = state(node)
    assert first is not None
    assert first.tables == ("shop.orders", "shop.items")
    now(node.embedded.subscribe(client, snapshot=InitialSnapshot(("other.t",))))
    assert state(node) == first
    wider = replace(CLIENT, filter=r"shop\..*,other\..*")
    now(node.embedded.subscribe(wider, snapshot=InitialSnapshot(("other.t",), again=True)))
    added = state(node)
    assert added is not None
    assert added.tables == ("shop.orders", "shop.items", "other.t")


def test_a_look_at_the_cursor_chooses_the_tables_of_the_subscription_behind_it(node: OneNode) -> None:
    """A client that asks for its cursor first has no filter in that request, which creates the cursor."""
    now(node.embedded.subscribe(CLIENT, opens=False, snapshot=InitialSnapshot(("*",), r"shop\.items")))
    first = state(node)
    assert first is not None
    assert first.tables == ("shop.items",)


def test_a_first_subscription_without_such_a_table_is_refused(node: OneNode) -> None:
    """The client gets no cursor, so that it can ask again."""
    for tables in (("*",), ("shop.nothing",)):
        refused: Deferred[object] = Deferred.fromCoroutine(
            node.embedded.subscribe(replace(CLIENT, filter=r"nowhere\..*"), snapshot=InitialSnapshot(tables))
        )
        with pytest.raises(SnapshotRefused):
            now(_again(refused))
    assert node.instance.meta.cursor(1001) is None


def test_a_filter_that_keeps_no_table_was_refused_as_if_nobody_had_named_one(node: OneNode) -> None:
    """The error asked for a table as schema.table, but the client had asked for all of them."""
    refused: Deferred[object] = Deferred.fromCoroutine(
        node.embedded.subscribe(replace(CLIENT, filter=r"nowhere\..*"), snapshot=InitialSnapshot(("*",)))
    )
    with pytest.raises(SnapshotRefused, match="no table that the filter of client id 1001 keeps"):
        now(_again(refused))


def test_one_text_that_cannot_be_stored_does_not_stop_the_destination(node: OneNode) -> None:
    """Half a surrogate pair in a condition made every write of the cursors fail, for all clients."""
    now(node.embedded.subscribe(CLIENT))
    for table, condition in (("shop.orders", "v = '\ud800'"), ("shop.\udcfc", "")):
        request = SnapshotRequest(SnapshotAction.START, (table,), {table: condition} if condition else {})
        with pytest.raises(SnapshotRefused):
            now(node.embedded.change_snapshot("example", 1001, request, ANYTHING))
    with pytest.raises(FilterInvalid, match="half a surrogate pair"):
        now(node.embedded.subscribe(replace(CLIENT, filter="shop\ud800")))
    message = now(node.embedded.get(CLIENT, GetRequest(1, 0.0)))
    with pytest.raises(LocalProtocolError, match="half a surrogate pair"):
        now(node.embedded.ack(CLIENT, message.batch_id, "\ud800"))
    now(node.embedded.ack(CLIENT, message.batch_id, "mark"))
    assert state(node) is None


def test_a_client_that_adds_tables_in_a_loop_does_not_fill_the_logs(node: OneNode) -> None:
    """Each such subscription wrote two lines at once, as fast as a client with the role read could send them."""
    now(node.embedded.subscribe(CLIENT))
    before = state(node)
    answers: list[object] = []
    for number in range(100):
        wanted = InitialSnapshot(("shop.orders",), again=True)
        Deferred.fromCoroutine(node.embedded.subscribe(CLIENT, snapshot=wanted)).addBoth(answers.append)
        added = state(node)
        assert (added != before) is (number < BEGUN_MOST)
        before = added
    node.clock.advance(BEGUN_S)
    assert len(answers) == 2 * BEGUN_MOST
    assert all(isinstance(each, LogPosition) for each in answers)
    now(node.embedded.subscribe(replace(CLIENT, client_id=1002), snapshot=InitialSnapshot(("shop.orders",))))
    now(node.embedded.subscribe(replace(CLIENT, client_id=1002), snapshot=InitialSnapshot(("shop.items",), again=True)))


async def _again(deferred: Deferred[object]) -> object:
    return await deferred


def test_a_client_leaves_tables_out_that_it_has_seen_go(node: OneNode) -> None:
    """A table that the source still has, or has again, stays; so does a snapshot that is over."""
    now(node.embedded.subscribe(CLIENT))

    def leave_out(*gone: str) -> SnapshotState:
        now(node.embedded.subscribe(CLIENT, opens=False, snapshot=InitialSnapshot(gone=gone)))
        found = state(node)
        assert found is not None
        return found

    begun = SnapshotState("s", ("shop.gone", "shop.orders", "shop.items"), phase=SnapshotPhase.FAILED, error="gone")
    meta = node.instance.meta
    cursor = meta.cursor(1001)
    assert cursor is not None
    meta.move(1001, replace(cursor, snapshot=begun.text))
    assert leave_out("shop.orders") == begun
    after = leave_out("shop.gone", "shop.orders", "other.u")
    assert (after.phase, after.error) == (SnapshotPhase.RUNNING, "")
    assert (after.tables, after.left_out) == (("shop.orders", "shop.items"), ("shop.gone",))
    meta.move(1001, replace(cursor, snapshot=replace(begun, phase=SnapshotPhase.DONE).text))
    assert leave_out("shop.gone").phase is SnapshotPhase.DONE
