"""The load: its verdict, and a short run on real parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.load.clients import Kind, Tally
from lab.load.run import Figures, Plan, broken, kinds, run, table

PLAN = Plan(idle=10, active=10, wide=5)


def good() -> Figures:
    """Return figures that break no bound: 8 and 3 clients are healthy."""
    return Figures(peak_mib=100.0, written=10, wide_written=2, tally=Tally(rows=80, large_rows=6, delays_s=[0.1] * 80))


def test_one_in_each_group_is_slow_and_one_never_acknowledges() -> None:
    """All others are healthy."""
    found = kinds(20, 10)
    assert [found.count(kind) for kind in (Kind.SLOW_READER, Kind.NEVER_ACKS, Kind.HEALTHY)] == [2, 2, 16]


def test_waits_for_a_processor_break_no_bound() -> None:
    """The databases and the clients of the load use the processors too."""
    assert not broken(PLAN, replace(good(), connecting=(2.0, 0.05), writing=(2.0, 0.05)))


def test_a_run_within_its_bounds() -> None:
    """Nothing is broken, and the table names the p99."""
    assert not broken(PLAN, good())
    assert "p99 from INSERT to client                   100 ms" in table(PLAN, good())


@pytest.mark.parametrize(
    ("figures", "what"),
    [
        (replace(good(), peak_mib=PLAN.ceiling_mib + 1), "memory: "),
        (replace(good(), writing=(0.3, 0.2)), "reactor: blocked for 200 ms"),
        (replace(good(), connecting=(0.3, 0.2)), "reactor: blocked for 200 ms"),
        (replace(good(), written=11), "rows: 80 of 88 arrived"),
        (replace(good(), wide_written=3), "large rows: 6 of 9 arrived"),
        (replace(good(), tally=Tally(rows=80, large_rows=6, errors=["lost"] * 2)), "lost"),
    ],
)
def test_a_broken_bound(figures: Figures, what: str) -> None:
    """Each bound has a line of its own."""
    (line,) = broken(PLAN, figures)
    assert line.startswith(what)


@pytest.mark.real
@pytest.mark.nightly("test_large.py and test_flat_memory.py: memory; test_hostile_peers.py: slow readers")
def test_a_short_load() -> None:
    """Memory stays under its ceiling and healthy clients get every row. Other tests share the processors: the bound of
    the reactor's delay is wide here, and `python -m lab.load` judges it on a machine at rest.
    """
    plan = Plan(seconds=10, active=40, wide=5, stall_s=5.0)
    figures = run(plan)
    print(table(plan, figures))
    assert not broken(plan, figures)
