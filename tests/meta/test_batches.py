"""Batches in flight, compared with a dict."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from canal_ha.errors import BatchNotFirst, BatchUnknown
from canal_ha.meta.batch_ids import Numbers
from canal_ha.meta.batches import Batches
from canal_ha.model.batch import PositionRange
from canal_ha.model.position import LogPosition
from tests.sampling import examples


def stretch(number: int) -> PositionRange:
    position = LogPosition("mysql-bin.000001", number)
    return PositionRange(number, "", lambda: (position, None))


class BatchesMachine(RuleBasedStateMachine):
    """Ids ascend, and only the oldest batch can be closed."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = Numbers()
        self.batches = Batches(1001, self.ids)
        self.open: dict[int, PositionRange] = {}
        self.last = 0

    @rule(number=st.integers(0, 1000))
    def get(self, number: int) -> None:
        self.last += 1
        self.open[self.last] = stretch(number)
        assert self.batches.open(self.open[self.last], 3) == self.last

    @rule(batch_id=st.integers(-1, 12))
    def ack(self, batch_id: int) -> None:
        if batch_id not in self.open:
            with pytest.raises(BatchUnknown):
                self.batches.ack(batch_id)
        elif batch_id != min(self.open):
            with pytest.raises(BatchNotFirst):
                self.batches.ack(batch_id)
        else:
            assert self.batches.ack(batch_id) == self.open.pop(batch_id)

    @rule(batch_id=st.integers(-1, 12))
    def rollback(self, batch_id: int) -> None:
        if batch_id not in self.open:
            with pytest.raises(BatchUnknown):
                self.batches.rollback(batch_id)
        elif batch_id != min(self.open):
            with pytest.raises(BatchNotFirst):
                self.batches.rollback(batch_id)
        else:
            self.batches.rollback(batch_id)
            self.open.clear()

    @rule()
    def clear(self) -> None:
        self.batches.clear()
        self.open.clear()

    @rule()
    def begin_anew(self) -> None:
        """Begin another stream of the client, which continues the ids."""
        self.batches = Batches(1001, self.ids)
        self.open.clear()

    @invariant()
    def same(self) -> None:
        assert self.batches.ids == tuple(self.open)


TestBatches = BatchesMachine.TestCase
TestBatches.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)


def test_texts() -> None:
    """Refusals have canal's texts. Those of ACK and ROLLBACK differ by a blank."""
    batches = Batches(1001, Numbers())
    with pytest.raises(BatchUnknown, match=r"^ack error , clientId:1001 batchId:7 is not exist , please check$"):
        batches.ack(7)
    with pytest.raises(BatchUnknown, match=r"^rollback error, clientId:1001 batchId:7 is not exist , please check$"):
        batches.rollback(7)
    batches.open(stretch(1), 3)
    batches.open(stretch(2), 3)
    for refused in (batches.ack, batches.rollback):
        with pytest.raises(BatchNotFirst, match=r"^batchId:2 is not the firstly:1$"):
            refused(2)
