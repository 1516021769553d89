"""A run: step after step, each judged by what arrived, until the time is over or the cluster does not recover."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace

from lab.chaos.faults import Fault
from lab.chaos.schedule import Step
from lab.chaos.stage import DESTINATION, JAVA, Stage
from lab.chaos.verdict import Again, Observed, Run, together
from lab.cluster.delivery import Delivery
from lab.cluster.fencing import judge
from lab.cluster.history import transactions
from lab.process import StartFailed

FLUSH_PERIOD_S = 1.0


class _Marks:
    """How far the counters of one delivery were when this was made."""

    def __init__(self, name: str, delivery: Delivery) -> None:
        self._name = name
        self._delivery = delivery
        self._repeated = delivery.repeated_rows
        self._huge_again = delivery.huge_again
        self._acked_again = len(delivery.acked_again)
        self._out_of_order = len(delivery.out_of_order)
        self._flaws = len(delivery.flaws)

    def since(self, step: Step, began: float, head: int) -> Observed:
        """Return what this client has seen since. began: monotonic seconds; head: the last committed row."""
        delivery, name = self._delivery, self._name
        silence_s = delivery.silence_s(began)
        return Observed(
            step,
            {} if name == JAVA else {name: silence_s},
            java_s=silence_s if name == JAVA else 0.0,
            lost=delivery.lost(min(head, delivery.highest)),
            repeated=delivery.repeated_rows - self._repeated,
            huge_again=delivery.huge_again - self._huge_again,
            acked_again=[
                Again(acked - began, came - began)
                for acked, came in zip(
                    delivery.acked_again[self._acked_again :], delivery.came_again[self._acked_again :], strict=True
                )
            ],
            out_of_order=[f"{name}: {line}" for line in delivery.out_of_order[self._out_of_order :]],
            flaws=[f"{name}: {line}" for line in delivery.flaws[self._flaws :]],
        )


def run(
    stage: Stage, steps: Iterable[Step], faults: dict[str, Fault], seconds: float, seed: int, say: Callable[[str], None]
) -> Run:
    """Run the steps that fit into the time. faults: by kind; say: gets a line for each step."""
    result = Run(gtid=stage.setting.gtid)
    begun: list[float] = []
    ends = time.monotonic() + seconds
    marks = [_Marks(*each) for each in stage.deliveries.items()]
    for step in steps:
        if time.monotonic() >= ends:
            break
        chance = random.Random(f"{seed} {step.number}")
        time.sleep(chance.uniform(0.0, FLUSH_PERIOD_S))  # the cursors were written just now
        began = mended = time.monotonic()
        try:
            _harm(stage, step, faults, chance)
            mended = time.monotonic()
            stage.recovered()
        except (AssertionError, StartFailed) as error:
            result.stuck = f"step {step.number} ({step.name}): {error}"
        seen = together([mark.since(step, began, stage.writer.head) for mark in marks])
        seen = replace(seen, recovery_s=time.monotonic() - mended)
        marks = [_Marks(*each) for each in stage.deliveries.items()]
        result.observed.append(seen)
        begun.append(began)
        say(
            f"{step}: without a row {max(seen.silence_s.values()):.2f} s (Java {seen.java_s:.2f} s), recovery"
            f" {seen.recovery_s:.1f} s, repeated {seen.repeated}, acked again {len(seen.acked_again)}, out of order"
            f" {len(seen.out_of_order)}, wrong {len(seen.flaws)}, lost {seen.lost}"
            + "".join(f"; {remark}" for remark in stage.remarks)
        )
        stage.remarks.clear()
        if result.stuck:
            break
    result.fencing = judge(transactions(stage.ensemble), [DESTINATION])
    to_monotonic = time.monotonic() - time.time()
    claims = [at + to_monotonic for at in result.fencing.claimed_at]
    result.observed = [
        replace(seen, claims_s=[at - began for at in claims])
        for seen, began in zip(result.observed, begun, strict=True)
    ]
    return result


def _harm(stage: Stage, step: Step, faults: dict[str, Fault], chance: random.Random) -> None:
    with ExitStack() as stack:
        for fault in step.faults:
            stack.enter_context(faults[fault](stage, chance))
        time.sleep(step.seconds)
