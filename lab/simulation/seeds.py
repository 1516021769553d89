"""Runs many seeds in worker processes. A seed gives the same run in every process."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from twisted.logger import LogEvent, globalLogPublisher

from lab.simulation.referee import Broken
from lab.simulation.storm import act, prepare

CHUNK = 25  # seeds that a worker runs in a row
TRACE_LINES = 60


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to.

    promise: the name of the promise that it broke first; "" if it broke none.
    what: what happened then.
    trace: the last events before that.
    deliveries, rows, writes: how much happened.
    """

    seed: int
    promise: str
    what: str
    trace: tuple[str, ...]
    deliveries: int
    rows: int
    writes: int


def run(seed: int) -> Outcome:
    """Run one seed."""
    simulation = prepare(seed)
    referee = simulation.referee

    def unhandled(event: LogEvent) -> None:
        if "log_failure" in event:
            referee.broke("no-surprise", str(event["log_failure"]))

    observer: Any = unhandled  # zope.interface has no types
    globalLogPublisher.addObserver(observer)
    try:
        act(simulation)
        promise, what = "", ""
    except Broken as broken:
        promise, what = broken.promise, str(broken)
    except Exception as error:
        promise, what = "no-surprise", repr(error)
    finally:
        globalLogPublisher.removeObserver(observer)
    trace = tuple(referee.trace[-TRACE_LINES:]) if promise else ()
    return Outcome(seed, promise, what, trace, referee.deliveries, referee.rows, referee.writes)


def run_all(seeds: Sequence[int], *, until_broken: bool = False) -> list[Outcome]:
    """Run seeds one after the other, with the garbage collector in between.

    until_broken: end with the first one that breaks a promise.
    """
    gc.collect()
    gc.disable()
    done = []
    try:
        for seed in seeds:
            done.append(run(seed))
            if until_broken and done[-1].promise:
                break
    finally:
        gc.enable()
    return done


def outcomes(start: int, count: int, workers: int) -> Iterator[Outcome]:
    """Yield the outcomes of the seeds from `start` on, in order, as they come in."""
    chunks = [range(first, min(first + CHUNK, start + count)) for first in range(start, start + count, CHUNK)]
    if workers == 1:
        for chunk in chunks:
            yield from run_all(chunk)
        return
    with ProcessPoolExecutor(workers) as pool:
        for chunk_outcomes in pool.map(run_all, chunks):
            yield from chunk_outcomes
