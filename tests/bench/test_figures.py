"""How benchmarks evaluate their samples; the readers themselves run in `deploy/test.sh speed`."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from bench import goals, measure, picture, report
from bench.goals import GOALS, Goal, Reached
from bench.latency import Latency
from bench.measure import ReaderFailed, Sample, Samples
from bench.run import BEGIN, END, renewed
from bench.scaling import COUNTS, Scaling
from bench.snapshot import SNAPSHOT, row


def sample(reader: str, seconds: float, *, rows: int = 1000, memory: int = 0) -> Sample:
    return Sample("mysql", "A", reader, rows, seconds, memory_bytes=memory)


def found(title: str, samples: Samples, latencies: list[Latency]) -> Reached:
    return next(
        goal
        for goal in goals.reached(samples, latencies, None, ["mysql"])
        if goal.title.startswith(title) and goal.workload in ("A", "paced")
    )


def test_readers_take_turns_and_one_that_fails_stays_out() -> None:
    """Each round runs each reader once, in order; a reader that fails is recorded with its reason and runs no more."""
    order: list[str] = []
    failures: Iterator[bool] = iter([False, True])

    def good() -> Sample:
        order.append("good")
        return sample("good", 1.0)

    def bad() -> Sample:
        order.append("bad")
        if next(failures):
            raise ReaderFailed("no more")
        return sample("bad", 2.0)

    samples = Samples()
    measure.in_turns({"bad": bad, "good": good}, 3, samples, lambda text: None)
    assert order == ["bad", "good", "bad", "good", "good"]
    assert samples.failed == {"bad": "no more"}
    assert len(samples.of("mysql", "A", "good")) == 3


def test_a_goal_compares_medians() -> None:
    """A goal compares median rates: one slow round of five and different numbers of rows do not matter."""
    samples = Samples()
    samples.taken += [sample("ingest", seconds) for seconds in (1.0, 1.0, 1.0, 9.0, 1.0)]
    samples.taken += [sample("go-mysql", seconds, rows=500) for seconds in (2.0, 2.0, 2.0, 2.0, 2.0)]
    goal = found("ingest beside go-mysql", samples, [])
    assert goal.value == pytest.approx(4.0)
    assert goal.good is True


def test_small_is_good_where_less_is_wanted() -> None:
    """Goals for memory and latency have an upper bound."""
    samples = Samples()
    latencies = [Latency("mysql", "canal-ha", 3.0, 9.0, 1.0, 0), Latency("mysql", "go-mysql", 1.0, 9.0, 0.1, 0)]
    assert found("latency, commit to client, at 1,000 transactions/s, median", samples, latencies).good is False
    assert found("latency, commit to client, at 1,000 transactions/s, 99th", samples, latencies).good is True
    memory = next(goal for goal in GOALS if goal.title.startswith("server's peak memory"))
    samples.taken += [sample("count", 1, memory=10), sample("java", 1, memory=100)]
    assert goals.ratio(samples, memory, "A", "mysql") == pytest.approx(0.1)


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.title)
def test_what_was_not_measured_is_neither_good_nor_bad(goal: Goal) -> None:
    """Without samples there is no ratio, and the table shows a dash."""
    assert goals.ratio(Samples(), goal, "A", "mysql") is None
    assert "MySQL -" in report.goals_table([Reached(goal.title, "A", "mysql", 1.0, False, None)])


@pytest.mark.parametrize("drawn", [0, 1, len(COUNTS)])
def test_the_picture_is_well_formed(drawn: int) -> None:
    """The picture is valid XML with a circle for each point, even without points."""
    scalings = [
        Scaling("mysql", kind, count, 1000 * count, 0.5, 1.0, 100_000_000)
        for kind in ("destinations", "client ids")
        for count in COUNTS[:drawn]
    ]
    root = ElementTree.fromstring(picture.svg(scalings))
    assert len(root.findall("{http://www.w3.org/2000/svg}circle")) == 2 * drawn


def test_the_report_goes_between_its_marks() -> None:
    """renewed() replaces the text between the marks and keeps the text around them."""
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert renewed(page, "new") == f"before\n{BEGIN}\n\nnew\n{END}\nafter\n"
    assert renewed(renewed(page, "new"), "newer").count(BEGIN) == 1


def test_a_table_of_snapshots_compares_each_reader_with_the_snapshot() -> None:
    """A line has a rate, the snapshot's rate divided by it, and processor time; a dash stands for what is missing."""
    samples = Samples()
    samples.taken += [Sample("mysql", "A", SNAPSHOT, 1000, 0.5, cpu_s=0.002), sample("mydumper", 1.0)]
    assert row(samples, "mysql", SNAPSHOT).split()[-4:] == ["2,000", "1.00", "x", "2.00"]
    assert row(samples, "mysql", "mydumper").split()[-4:] == ["1,000", "2.00", "x", "-"]
    assert row(samples, "mysql", "debezium").split()[-3:] == ["-", "-", "-"]


def test_a_bound_is_processor_time_of_a_row() -> None:
    """The node's time counts while a client counts, the client's while it makes Arrow; less is better."""
    samples = Samples()
    samples.taken += [
        Sample("mysql", "A", "count", 1_000_000, 1.0, cpu_s=0.3, client_cpu_s=0.9),
        Sample("mysql", "A", "arrow", 1_000_000, 1.0, cpu_s=0.9, client_cpu_s=0.16),
    ]
    node, client = found("processor of the node", samples, []), found("processor of a client", samples, [])
    assert node.value == pytest.approx(300)
    assert node.good is True
    assert client.value == pytest.approx(160)
    assert client.good is False
    assert "MySQL 300" in report.goals_table([node])
    assert "≤ 150 ns a row" in report.goals_table([client])
