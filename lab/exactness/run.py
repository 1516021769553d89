"""A run: faults while the snapshot goes on, then silence, then the comparison."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from canal_ha.model.snapshot import SnapshotPhase
from lab.exactness.stage import PATIENCE_S, Plan, Stage
from lab.exactness.table import TABLE, pad
from lab.exactness.verdict import Verdict, judge
from lab.replica import Replica
from lab.waiting import until

TURNS_LEAST = 0.1  # a chunk, if parts are read side by side; parts that are read one after the other have a few in all

Fault = Callable[[Stage, random.Random], None]


@dataclass(slots=True)
class Result:
    """What a run has shown.

    seconds: that the snapshot took.
    stuck: why the run ended early; "" if it did not.
    """

    chunks: int = 0
    commits: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    stuck: str = ""

    def broken(self, plan: Plan) -> list[str]:
        """Return every broken promise, a sentence each."""
        found = [f"stuck: {self.stuck}"] if self.stuck else []
        if not self.stuck and self.chunks < plan.chunks * 0.8:
            found.append(f"the snapshot had {self.chunks} chunks, of about {plan.chunks}")
        if not self.stuck and plan.connections > 1 and self.verdict.turns < self.chunks * TURNS_LEAST:
            found.append(f"{plan.connections} connections never read side by side")
        found += [f"difference: {line}" for line in self.differences]
        found += [f"older row: {line}" for line in self.verdict.older]
        found += [f"newer row: {line}" for line in self.verdict.ahead]
        found += [f"out of order: {line}" for line in self.verdict.out_of_order]
        moved = self.faults["switch"] + self.faults["lag"]
        if self.verdict.moves > moved:
            found.append(f"changes came again {self.verdict.moves} times, and the source changed {moved} times")
        return found


def _node(stage: Stage, chance: random.Random) -> None:
    """SIGKILL of the running node; it starts again."""
    node = stage.owner()
    node.kill()
    time.sleep(chance.uniform(0.0, 3.0))
    node.launch()


def _client(stage: Stage, chance: random.Random) -> None:
    """SIGKILL of the client; it starts again."""
    stage.kill_client()
    time.sleep(chance.uniform(0.0, 1.0))
    stage.start_client()


def _both(stage: Stage, chance: random.Random) -> None:
    """SIGKILL of the running node and the client; both start again."""
    node = stage.owner()
    for kill in chance.sample([node.kill, stage.kill_client], 2):
        kill()
    time.sleep(chance.uniform(0.0, 2.0))
    stage.start_client()
    node.launch()


def _switch(stage: Stage, chance: random.Random) -> None:
    """SIGKILL of the source; the standby takes its place, and the old source becomes the standby."""
    source = stage.source
    with stage.writers.stopped():
        start = source.promote()
        stage.stretch(source.primary)
        stage.writers.server = source.primary
    time.sleep(chance.uniform(4.0, 8.0))
    source.rejoin(start)


def _lag(stage: Stage, chance: random.Random) -> None:
    """An operator's switch to the other server, while replication stands still."""
    replica = Replica(stage.source.standby)
    replica.stop("SQL_THREAD")
    time.sleep(chance.uniform(0.2, 1.0))
    until(stage.switched, seconds=PATIENCE_S, what="an operator's switch")
    time.sleep(chance.uniform(0.5, 3.0))
    replica.start("SQL_THREAD")


FAULTS: Mapping[str, Fault] = {"node": _node, "client": _client, "both": _both, "switch": _switch, "lag": _lag}
KINDS = ("node", "client", "both", "node", "client", "both", "lag", "switch")


def schedule(plan: Plan) -> list[tuple[float, str]]:
    """Return the faults and the share of the table that is read when each begins. The last part is left in peace."""
    chance = random.Random(f"faults {plan.seed}")
    shares = sorted(chance.uniform(0.02, 0.95) for _ in range(plan.faults))
    kinds = [chance.choice(KINDS) for _ in shares]
    if kinds and "switch" not in kinds:
        kinds[chance.randrange(len(kinds))] = "switch"
    return list(zip(shares, kinds, strict=True))


def run(stage: Stage, say: Callable[[str], None]) -> Result:
    """Run. say: gets a line for each fault."""
    plan, result, began = stage.plan, Result(), time.monotonic()
    try:
        for number, (share, kind) in enumerate(schedule(plan)):
            _reached(stage, share)
            say(f"[{time.monotonic() - began:4.0f} s] {share:4.0%}: {kind}")
            FAULTS[kind](stage, random.Random(f"fault {plan.seed} {number}"))
            result.faults[kind] += 1
        result.chunks = _finished(stage)
        result.seconds = time.monotonic() - began
        _drained(stage)
        result.differences = stage.differences()
    except AssertionError as error:
        result.stuck = f"{error}\n{stage.describe()}"
    result.commits = stage.writers.commits
    stage.kill_client()
    result.verdict = judge(stage.copy.applied())
    return result


def _reached(stage: Stage, share: float) -> None:
    """Wait until the client has this share of the table."""
    _progress(stage, lambda: stage.share() >= share, f"{share:.0%} of the snapshot")


def _finished(stage: Stage) -> int:
    """Wait for the end of the snapshot; return how many chunks the client has acknowledged."""

    def chunks() -> int:
        state = stage.snapshot()
        assert state is None or state.phase is not SnapshotPhase.FAILED, f"the snapshot failed: {state}"
        return state.chunks if state is not None and state.phase is SnapshotPhase.DONE else 0

    return _progress(stage, chunks, "the end of the snapshot")


def _progress(stage: Stage, look: Callable[[], int], what: str) -> int:
    """Wait until `look` returns something. Raises AssertionError when the copy has not grown for PATIENCE_S."""
    front, since = stage.copy.front(), time.monotonic()
    while not (found := look()):
        stage.check()
        if stage.copy.front() != front:
            front, since = stage.copy.front(), time.monotonic()
        assert time.monotonic() - since < PATIENCE_S, f"{what} did not come, nor anything for {PATIENCE_S:.0f} s"
        time.sleep(0.05)
    return found


def _drained(stage: Stage) -> None:
    """Stop the writers, and wait until the copy has what they have written."""
    stage.writers.stop()
    stage.check()
    key = stage.plan.keys  # no writer has it
    stage.source.primary.execute(f"INSERT INTO {TABLE} VALUES ({key}, 1, {pad(1)})")
    until(lambda: stage.copy.has(key), seconds=PATIENCE_S, what="the last row")


def table(result: Result) -> str:
    """Return the figures as lines of text."""
    verdict = result.verdict
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(result.faults.items())) or "none"
    rows = [
        ("chunks", f"{result.chunks} in {result.seconds:.0f} s"),
        ("faults", faults),
        ("commits", f"{result.commits}"),
        ("changes of the binlog", f"{verdict.changes}, {verdict.repeated} came again"),
        ("times that changes came again", f"{verdict.rewinds} on new connections, {verdict.moves} after moves"),
        ("rows of the snapshot applied", f"{verdict.snapshot_rows}"),
        ("turns between parts of the table", f"{verdict.turns}"),
        ("rows that differ", f"{len(result.differences)}"),
        ("older rows over newer ones", f"{len(verdict.older)}"),
        ("rows newer than their place", f"{len(verdict.ahead)}"),
        ("changes out of order", f"{len(verdict.out_of_order)}"),
    ]
    return "\n".join(f"{name:36}{value}" for name, value in rows)
