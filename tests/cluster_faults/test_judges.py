"""The checks of deliveries and of fencing find the errors that they look for."""

from __future__ import annotations

from typing import Any

from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from lab.cluster.delivery import Delivery
from lab.cluster.fencing import judge
from lab.cluster.history import Operation, Transaction


def rows(first: int, last: int, size: int = 1) -> list[dict[str, Any]]:
    """Return these rows of transactions of `size` rows. The first transaction begins at row 1."""
    return [
        {"id": at, "txn": (at - 1) // size, "nth": (at - 1) % size + 1, "size": size} for at in range(first, last + 1)
    ]


def test_a_gap_is_lost_and_out_of_order() -> None:
    """A row that never came is lost, and the row behind it is out of order."""
    delivery = Delivery()
    delivery.take("a", rows(1, 2) + rows(4, 5), 1.0)
    assert delivery.lost(5) == 1
    assert delivery.out_of_order == ["4 after 2"]


def test_redelivery_begins_at_a_transaction_and_goes_on_without_gaps() -> None:
    """Delivery may go back to 4 (of 4 to 6), but not to 5, and may not leave out rows after that."""
    delivery = Delivery()
    delivery.take("a", rows(1, 9, 3), 1.0)
    delivery.take("b", rows(4, 9, 3), 2.0)
    assert (delivery.out_of_order, delivery.repeated_rows, delivery.lost(9)) == ([], 6, 0)
    delivery.take("b", rows(5, 6, 3), 3.0)
    delivery.take("b", rows(10, 12, 3), 4.0)
    assert delivery.out_of_order == ["5 after 9", "10 after 6"]


def test_what_came_before_another_batch_of_the_same_process_was_acknowledged() -> None:
    """Rows 1 and 2 count as acknowledged. Row 3 does not, because its process got no further batch."""
    delivery = Delivery()
    delivery.take("a", rows(1, 2), 1.0)
    delivery.take("a", rows(3, 3), 2.0)
    delivery.take("b", rows(3, 4), 3.0)
    assert delivery.acked_transactions_repeated == 0
    delivery.take("b", rows(2, 5), 4.0)
    assert delivery.acked_transactions_repeated == 1


def test_the_longest_silence_after_a_moment() -> None:
    """Repeated rows do not end a silence."""
    delivery = Delivery()
    for at in (1, 2):
        delivery.take("a", rows(at, at), float(at))
    delivery.take("b", rows(2, 2), 5.0)
    delivery.take("b", rows(3, 3), 8.0)
    assert delivery.silence_s(1.5) > 5.9


def cursor(session: int, offset: int, *, fenced: bool = True, server: str = "") -> Transaction:
    """Return a write of client 1's cursor in the binlog of this server."""
    data = LogPosition("mysql-bin.000001", offset, server=server).to_json(with_type=True).encode()
    check = (Operation("check", tree.destination("d"), version=2),) if fenced else ()
    return Transaction(offset, session, 0.0, (*check, Operation("set", tree.cursor("d", 1), data)))


def claim(session: int) -> Transaction:
    """Return the claim of a new owner."""
    return Transaction(
        1, session, 0.0, (Operation("create", tree.running("d")), Operation("set", tree.destination("d")))
    )


def test_a_write_of_an_earlier_owner_is_found() -> None:
    """A write by 6 after 7 has claimed is found, and so is a write without a check, or one that moves a cursor back."""
    good = [claim(6), cursor(6, 10), claim(7), cursor(7, 20)]
    result = judge(good, ["d"])
    assert (result.claims, result.cursor_writes) == (2, 2)
    again = Transaction(9, 7, 5.0, (Operation("set", tree.destination("d")), Operation("set", tree.destination("d"))))
    assert judge([*good, again, claim(8)], ["d"]).claimed_at == [0.0, 0.0, 5.0, 0.0]  # `running` is there already
    assert (result.from_old_epoch, result.unfenced, result.backwards) == ([], [], [])
    assert len(judge([*good, cursor(6, 30)], ["d"]).from_old_epoch) == 1
    assert len(judge([*good, cursor(7, 30, fenced=False)], ["d"]).unfenced) == 1
    assert len(judge([*good, cursor(7, 19)], ["d"]).backwards) == 1


def test_a_cursor_in_another_servers_binlog_is_not_compared() -> None:
    """Offsets of two servers have nothing to do with each other; within each server the cursor still moves forward."""
    moved = [claim(6), cursor(6, 20, server="a"), cursor(6, 10, server="b"), cursor(6, 15, server="b")]
    assert judge(moved, ["d"]).backwards == []
    assert len(judge([*moved, cursor(6, 14, server="b")], ["d"]).backwards) == 1
