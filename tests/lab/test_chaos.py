"""The chaos run finds what it is made to find: its schedule, its rows, its verdict."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from lab.chaos import rows, schedule
from lab.chaos.__main__ import main
from lab.chaos.faults import faults
from lab.chaos.schedule import Step
from lab.chaos.source import asks_for_the_binlog, newest_journal, tear
from lab.chaos.verdict import (
    Again,
    Observed,
    Run,
    outside_promise,
    percentile,
    table,
    together,
    violations,
)
from lab.cluster.delivery import Delivery
from lab.cluster.fencing import Fencing
from lab.mysql import MySQL

KILL, STOP, SWITCH = Step(1, ("kill",), 8.0), Step(2, ("stop",), 3.0), Step(3, ("switch", "kill"), 8.0)
GOOD = Observed(
    KILL, {"plain": 6.5, "holding": 6.6}, java_s=10.0, recovery_s=2.0, repeated=20, acked_again=[Again(-1.5, 7.0)]
)


def run(*observed: Observed, fencing: Fencing | None = None, stuck: str = "", gtid: bool = False) -> Run:
    """Return a run that has seen this."""
    return Run(list(observed), fencing or Fencing(cursor_writes=9), stuck, gtid)


# ---- the schedule


def test_a_seed_gives_the_same_steps() -> None:
    """The schedule is a function of the seed; other seeds give other steps."""
    assert schedule.text(7, 50) == schedule.text(7, 50)
    assert schedule.text(7, 50) != schedule.text(8, 50)


def test_every_fault_comes_in_one_round() -> None:
    """The first round of any seed has every kind of fault, and each is implemented."""
    for seed in range(5):
        kinds = {kind for step in islice(schedule.steps(seed), 35) for kind in step.faults}
        assert kinds == schedule.WHAT.keys()
    assert faults(1).keys() == schedule.WHAT.keys()


def test_seeds_draw_every_setting() -> None:
    """MySQL and MariaDB, GTIDs and offsets, both kinds of metadata come in all combinations."""
    assert len({schedule.setting(seed) for seed in range(60)}) == 8


def test_one_kind_of_step_is_repeated_alone() -> None:
    """`only` names a step of the schedule, or any combination of faults."""
    assert {step.faults for step in islice(schedule.steps(1, "ddl + kill + ddl"), 5)} == {("ddl", "kill", "ddl")}
    assert {step.faults for step in islice(schedule.steps(1, "flip + stop"), 5)} == {("flip", "stop")}


def test_the_command_prints_the_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    """--schedule prints the setting and the steps, and starts nothing."""
    assert main(["--schedule", "--seed", "3", "--steps", "4"]) == 0
    assert capsys.readouterr().out == schedule.text(3, 4) + "\n"


def test_the_command_refuses_an_unknown_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelled fault is an error of usage."""
    with pytest.raises(SystemExit):
        main(["--only", "kil"])
    assert "unknown fault" in capsys.readouterr().err


# ---- rows


def row(number: int = 40, columns: str = "id,txn,c3,nth,size,form,pad,c9") -> dict[str, object]:
    """Return a sound row with these columns."""
    fixed = {"id": number, "txn": 4, "nth": 1, "size": 1, "form": columns, "pad": rows.letter(number) * 3}
    return {name: fixed.get(name, rows.value(number, name) if name[0] == "c" else None) for name in columns.split(",")}


def test_a_row_with_its_own_columns_and_values_is_sound() -> None:
    """Numbers may be texts, as the Java client prints them, and the pad may be empty."""
    assert rows.flaw(row()) == ""
    assert rows.flaw({name: str(value) for name, value in row().items()}) == ""
    assert rows.flaw({**row(), "pad": ""}) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {**row(), "c3": row()["c9"], "c9": row()["c3"]},
        {name: value for name, value in row().items() if name != "c9"},
        {**row(), "c10": 1},
        {**row(), "c3": None},
        {**row(), "pad": "ooxo"},
        dict(reversed(row().items())),
    ],
)
def test_a_row_of_another_definition_or_another_row_is_not(wrong: dict[str, object]) -> None:
    """Swapped values, missing, additional and empty columns, another pad and another order are all seen."""
    assert rows.flaw(wrong) != ""


def test_deliveries_collect_flaws_and_late_acknowledgements() -> None:
    """A flaw names its row. A transaction counts as acknowledged only when all of its rows are."""
    delivery = Delivery(inferred=False, flaw=rows.flaw)
    three = [{**row(number), "nth": number, "size": 3} for number in (1, 2, 3)]
    delivery.take("a", three, 1.0)
    delivery.confirm(2, 2.0)
    delivery.take("b", three, 3.0)
    assert delivery.acked_again == []
    delivery.confirm(3, 4.0)
    delivery.take("c", [*three[:2], {**three[2], "c3": 5}], 5.0)
    assert (delivery.acked_again, delivery.came_again) == ([4.0], [5.0])
    assert [line.partition(":")[0] for line in delivery.flaws] == ["row 3"]


# ---- the verdict


def test_a_run_that_saw_nothing_is_a_violation() -> None:
    """No step, or no cursor in the logs of ZooKeeper, proves nothing."""
    assert violations(run()) == ["no step ran"]
    [line] = violations(run(GOOD, fencing=Fencing()))
    assert "no cursor" in line


def test_a_run_within_the_promises_has_no_violations() -> None:
    """Repeated rows of the last flush period are allowed after a crash, and of a minute after a switch."""
    switch = replace(GOOD, step=SWITCH, silence_s={"plain": 19.0}, acked_again=[Again(-30.0, 9.0)])
    stop = Observed(STOP, {"plain": 0.4}, recovery_s=3.0)
    assert violations(run(GOOD, stop, switch)) == []


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (replace(GOOD, lost=3), "step 1 (kill): 3 rows lost"),
        (replace(GOOD, out_of_order=["java: 9 after 7"]), "out of order: java: 9 after 7"),
        (replace(GOOD, flaws=["plain: row 9: c1 is 4"]), "wrong row: plain: row 9"),
        (replace(GOOD, acked_again=[Again(-0.5, 7.0), Again(-2.5, 7.0)]), "1 acknowledged transactions came again"),
        (Observed(STOP, {"plain": 0.2}, acked_again=[Again(0.1, 0.2)]), "1 acknowledged transactions came again"),
        (Observed(Step(4, ("park", "ddl"), 1.0), {"plain": 0.2}, acked_again=[Again(-0.1, 1.0)]), "came again"),
        (replace(GOOD, silence_s={"plain": 8.1}), "kill: p99 without a new row is 8.10 s, the bar is 8.00 s"),
        (Observed(STOP, {"plain": 1.1}), "stop: p99 without a new row is 1.10 s, the bar is 1.00 s"),
        (replace(GOOD, recovery_s=20.5), "20.5 s until all was well"),
    ],
)
def test_each_broken_promise_of_a_step_is_said(seen: Observed, said: str) -> None:
    """One violation is one sentence."""
    [line] = violations(run(GOOD, seen))
    assert said in line


def test_each_wrong_write_of_a_cursor_is_said() -> None:
    """An earlier owner's write, an unfenced one and a step back are violations, and so is a cluster that is stuck."""
    fencing = Fencing(cursor_writes=3, from_old_epoch=["x"], unfenced=["y"], backwards=["z"])
    assert [line.partition(":")[0] for line in violations(run(GOOD, fencing=fencing, stuck="no owner"))] == [
        "stuck",
        "cursor written by an earlier owner",
        "cursor written without a check of the epoch",
        "cursor moved back",
    ]


def test_limits_of_time_grow_on_a_loaded_machine_and_promises_do_not() -> None:
    """slow multiplies bars, but not the flush period."""
    slow = replace(GOOD, silence_s={"plain": 12.0}, recovery_s=30.0)
    assert violations(run(slow), slow=2.0) == []
    assert len(outside_promise(replace(GOOD, acked_again=[Again(-2.5, 7.0)]))) == 1


@pytest.mark.parametrize("fault", ["hide", "crash", "switch"])
def test_a_switch_that_repeats_a_minute_although_there_are_gtids_is_noticed(fault: str) -> None:
    """With GTIDs nothing comes again after a switch, except what a crash of a node would repeat, too."""
    seen = Observed(Step(1, (fault,), 6.0), {"plain": 9.0}, acked_again=[Again(-1.5, 7.0), Again(-30.0, 7.0)])
    assert violations(run(seen)) == []
    [line] = violations(run(seen, gtid=True))
    assert "1 acknowledged transactions came again" in line
    assert "acknowledged 30.0 s before the beginning of the fault" in line
    assert table(run(seen, gtid=True)).splitlines()[1].split()[7] == "1"


def test_an_owner_that_repeats_what_it_has_let_a_client_acknowledge_is_noticed() -> None:
    """A node was killed, the next one claimed the destination 6 s later, and an acknowledgement 9 s later got lost."""
    seen = replace(GOOD, acked_again=[Again(9.0, 12.0)], claims_s=[-40.0, 6.0, 20.0])
    [line] = violations(run(seen))
    assert "acknowledged 9.0 s after the beginning of the fault" in line
    assert violations(run(replace(seen, claims_s=[6.0, 11.0]))) == []
    assert violations(run(replace(seen, acked_again=[Again(4.0, 12.0)]))) == []
    assert violations(run(replace(seen, claims_s=[-40.0]))) != []
    assert violations(run(replace(seen, acked_again=[Again(1.0, 1.5)], claims_s=[]))) == []
    expired = replace(seen, step=Step(1, ("expire",), 1.0), claims_s=[0.2])
    assert violations(run(replace(expired, acked_again=[Again(4.0, 5.0)]))) == []
    assert violations(run(expired)) != []


def test_what_a_switch_without_gtids_repeats_may_be_acknowledged_after_the_fault_began() -> None:
    """The node notices the fault of the source late. With GTIDs it repeats nothing."""
    seen = Observed(Step(1, ("switch",), 6.0), {"plain": 9.0}, acked_again=[Again(3.0, 7.0)])
    assert violations(run(seen)) == []
    assert violations(run(seen, gtid=True)) != []


def test_a_combined_step_is_not_held_to_the_bars_of_its_parts() -> None:
    """A node that is killed while the source changes takes longer."""
    assert violations(run(Observed(SWITCH, {"plain": 15.0}))) == []


def test_a_huge_transaction_takes_its_time() -> None:
    """The source writes it after the faults, so recovery has no limit."""
    assert violations(run(Observed(Step(5, ("huge", "kill"), 8.0), {"plain": 15.0}, recovery_s=60.0))) == []


def test_a_huge_transaction_that_comes_again_takes_its_time() -> None:
    """A switch soon after a huge transaction can bring it again, to each client."""
    slow = Observed(SWITCH, {"plain": 25.0}, recovery_s=40.0, repeated=20_000)
    assert len(violations(run(slow))) == 1
    assert violations(run(replace(slow, huge_again=1))) == []


def test_deliveries_count_the_huge_transactions_that_come_again() -> None:
    """Each time counts once, also if the client did not get the whole transaction before."""
    delivery = Delivery()
    huge = [{"id": number, "nth": number, "size": 2000} for number in range(1, 2001)]
    delivery.take("a", huge[:1500], 1.0)
    assert delivery.huge_again == 0
    delivery.take("b", huge, 2.0)
    delivery.take("c", huge, 3.0)
    assert (delivery.huge_again, delivery.flaws) == (2, [])


def test_percentiles_are_values_that_occurred() -> None:
    """The 99th of few values is the largest one."""
    assert (percentile([], 99), percentile([3.0, 1.0, 2.0], 50), percentile([3.0, 1.0, 2.0], 99)) == (0.0, 2.0, 3.0)
    assert percentile([float(at) for at in range(1, 201)], 99) == 198.0


def test_the_table_has_a_line_for_each_kind() -> None:
    """Steps of one kind are counted together; the verdict of the cursors and the bars follow."""
    lines = table(run(GOOD, GOOD, Observed(STOP, {"plain": 0.2}))).splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["kill", "2"], ["stop", "1"]]
    assert lines[-2:] == ["kill: p99 6.60 s, bar 8.00 s", "stop: p99 0.20 s, bar 1.00 s"]


def test_what_the_clients_have_seen_adds_up() -> None:
    """Counts are added, times kept for each client; only the Java client's is apart."""
    java = Observed(KILL, {}, java_s=10.0, lost=1, repeated=2, flaws=["java: row 1"])
    both = together(
        [java, Observed(KILL, {"plain": 6.0}, lost=1, repeated=3, huge_again=2, acked_again=[Again(-1.0, 7.0)])]
    )
    assert (both.silence_s, both.java_s, both.lost, both.repeated) == ({"plain": 6.0}, 10.0, 2, 5)
    assert (both.huge_again, both.acked_again, both.flaws) == (2, [Again(-1.0, 7.0)], ["java: row 1"])


# ---- the source


def test_a_torn_binlog_keeps_all_that_was_written(tmp_path: Path) -> None:
    """tear() appends a part of the last events to the newest journal and changes nothing before it."""
    event = bytes(9) + (40).to_bytes(4, "little") + bytes(27)
    (tmp_path / "mysql-bin.000001").write_bytes(b"old")
    (tmp_path / "mysql-bin.index").write_bytes(b"")
    journal = tmp_path / "mysql-bin.000002"
    whole = b"\xfebin" + event * 9
    lengths: Counter[int] = Counter()
    for seed in range(20):
        journal.write_bytes(whole)
        tear(newest_journal(tmp_path), random.Random(seed))
        torn = journal.read_bytes()
        assert torn.startswith(whole)
        assert (event * 4).startswith(torn[len(whole) :])
        lengths[len(torn) - len(whole)] += 1
    assert 0 < min(lengths) <= max(lengths) < 160
    assert len(lengths) > 5


def test_only_the_request_for_the_binlog_is_recognized() -> None:
    """A query that contains the command's byte is not one."""
    assert asks_for_the_binlog(b"\x0b\0\0\0\x12" + bytes(10))
    assert asks_for_the_binlog(b"\x02\0\0\0\x1e\0")
    assert not asks_for_the_binlog(b"\x09\0\0\0\x03select 1")
    assert not asks_for_the_binlog(b"\x03\0\0\1\x12\0\0")


@pytest.mark.real
def test_mysql_cuts_a_torn_transaction_off() -> None:
    """After the crash that the chaos run makes, MySQL starts with the journal as it was before the torn transaction."""
    with MySQL() as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int)", "INSERT INTO shop.t VALUES (1)")
        server.kill()
        journal = newest_journal(server.data)
        whole = journal.read_bytes()
        tear(journal, random.Random(1))
        assert len(journal.read_bytes()) > len(whole)
        server.start()
        assert journal.read_bytes()[22:] == whole[22:]  # before that is the flag of a journal that is in use
        assert server.query("SELECT id FROM shop.t") == [{"id": 1}]
