"""Whole clusters in virtual time keep every promise, whatever breaks; and the simulation notices seeded faults."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lab.mutants.mutants import IN_CI, MUTANTS, ROOT, NotApplicable
from lab.simulation.referee import PROMISES
from lab.simulation.seeds import run, run_all
from lab.simulation.storm import act, prepare
from lab.simulation.time import World
from tests.sampling import LONG

SEEDS = int(os.environ.get("CANAL_HA_SEEDS") or (2000 if LONG else 400))
CHUNK = 100


@pytest.mark.parametrize("chunk", range(SEEDS // CHUNK))
def test_whatever_breaks_every_promise_is_kept(chunk: int) -> None:
    """No seed breaks a promise of lab/simulation/referee.py, and the runs are not idle.

    `python -m lab.simulation --seeds 1 --start SEED --trace` repeats a seed.
    """
    outcomes = run_all(range(chunk * CHUNK, (chunk + 1) * CHUNK))
    assert [(each.seed, each.what) for each in outcomes if each.promise] == []
    assert sum(each.deliveries for each in outcomes) > 20 * CHUNK
    assert sum(each.writes for each in outcomes) > 5 * CHUNK


def test_a_seed_repeats_exactly() -> None:
    """Two runs of a seed have the same events at the same times, so that a failure can be repeated."""
    traces = []
    for _ in range(2):
        simulation = prepare(7)
        act(simulation)
        traces.append(simulation.referee.trace)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 50


def test_no_run_waits_for_another_thread() -> None:
    """A thread that waits would stop the whole simulation. In this run, a node that stops opens a stream."""
    assert not run(5528).promise


def test_time_never_goes_back() -> None:
    """A read waits for a write that the leader refused. It once came before the write, and this run never ended."""
    with pytest.raises(ValueError, match="ago"):
        World().callLater(-0.001, print)
    assert not run(14488).promise


def test_a_switch_that_a_paused_node_reports_late_does_not_undo_a_later_one() -> None:
    """The node writes its switch and is paused. Its successor switches back before the first one is reported."""
    assert run(19488).what == ""


def test_rows_are_in_flight_although_their_connection_has_ended() -> None:
    """A node answers a GET whose client is gone. The client's next connection gets the rows behind these."""
    assert run(23602).what == ""


def test_a_late_owner_takes_no_write_of_its_successor_for_an_edit() -> None:
    """The lease ends while a write has no answer. Then the node reads a cursor that the next owner has written."""
    assert run(118).what == ""


def test_an_owner_that_has_seen_the_first_of_two_edits_goes_on_there_until_it_sees_the_second() -> None:
    """A follower of ZooKeeper may tell the newest edit late."""
    assert run(9673).what == ""


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (3295, "a second roll-back finds nothing in flight"),
        (10051, "the lease ends behind the answer to a switch"),
        (19052, "a roll-back inside the roll-back of another connection"),
        (20104, "an edit of what a refused first SUBSCRIBE has left"),
        (25508, "a GET that is refused after its wait"),
        (39785, "a late roll-back of a dead connection"),
        (5279, "a late roll-back of a dead connection whose client id is gone"),
    ],
)
def test_a_seed_that_has_found_a_defect_breaks_no_promise(seed: int, what: str) -> None:
    """They need more than the 400 seeds of every push to be found."""
    assert run(seed).what == "", what


def test_mutants_apply() -> None:
    """The text of each mutant is in its module as often as the mutant says, and the result compiles."""
    for mutant in MUTANTS:
        mutant.check()
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
    assert set(IN_CI) <= {mutant.name for mutant in MUTANTS}


def test_a_mutant_that_does_not_apply_is_an_error() -> None:
    """A changed module must not turn a mutant into a proof of nothing."""
    with pytest.raises(NotApplicable, match="lease"):
        next(mutant for mutant in MUTANTS if mutant.module.endswith("lease.py")).apply("")


def test_the_simulation_notices_seeded_faults() -> None:
    """A few mutants are noticed as docs/guarantees.md says; `python -m lab.mutants` runs all of them."""
    done = subprocess.run(
        [sys.executable, "-m", "lab.mutants", "--ci", "--workers", "1"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stdout
    page = (ROOT / "docs" / "guarantees.md").read_text().splitlines()
    assert [line for line in done.stdout.splitlines()[:-1] if line not in page] == [], "update the table of mutants"


def test_a_broken_run_names_its_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outcome has the seed, the promise and what happened before."""
    monkeypatch.setattr("canal_ha.zookeeper.lease.PART", 1000.0)
    outcome = next(each for each in map(run, range(200)) if each.promise)
    assert outcome.promise in PROMISES
    assert outcome.promise in outcome.what
    assert outcome.trace
