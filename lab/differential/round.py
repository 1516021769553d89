"""One round: a script on a server, read through nodes that know much, little or nothing of the past."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

from canal_ha.client.connector import SimpleConnector
from lab.differential.dialect import Dialect
from lab.differential.judge import Wrong, judge
from lab.differential.oracle import Oracle
from lab.differential.readers import DESTINATION, Got, TooLate, filter_of, reading_from, subscribed, until_mark
from lab.differential.script import script
from lab.differential.steps import At, Step
from lab.differential.tally import UNEXPLAINED, Tally, reason
from lab.differential.world import quoted
from lab.mysql import ADMIN, SqlServer
from lab.node import Node, follow

Metadata = Literal["MINIMAL", "FULL", "CHANGING", "NO_LOG"]
Image = Literal["FULL", "MINIMAL", "NOBLOB"]

BATCH = 10
"""Statements between two comparisons."""
_JOURNAL = 2
"""Batches between two new journals, so that a far reader is more journals ahead than a node reads to reach it."""
_AHEAD = 5
"""Batches between two private reads from the newest position."""
_SMALL_RING = {"canal.instance.memory.buffer.size": "64", "canal.instance.memory.batch.mode": "ITEMSIZE"}
_WARM, _LAGGING, _AHEAD_ID, _COLD = 1001, 1002, 1003, 1004


class Follower:
    """A subscribed client, which goes on at its cursor on whatever node there is."""

    def __init__(self, client_id: int, node: Node, tables: str, at: At) -> None:
        """Subscribe; the first subscription starts at the newest position, `at`."""
        self._client_id = client_id
        self._tables = tables
        self.at = at
        self.client = subscribed(node, client_id, tables)

    def move(self, node: Node) -> None:
        """Go on on another node."""
        self.client.disconnect()
        self.client = subscribed(node, self._client_id, self._tables)

    def begin_anew(self, node: Node, at: At) -> None:
        """Give up what is unread and start at the newest position, `at`."""
        self.move(node)
        self.client.unsubscribe()
        self.client.subscribe(self._tables)
        self.at = at


class Round:
    """See the module. Everything random comes from the seed."""

    def __init__(
        self, server: SqlServer, dialect: Dialect, seed: int, statements: int, metadata: Metadata, image: Image
    ) -> None:
        """Prepare a round.

        server: a running server, whose binlog_row_metadata and binlog_row_image the round sets.
        dialect: its language.
        seed: of the script.
        statements: the number of steps.
        metadata: binlog_row_metadata (NO_LOG: MariaDB), or CHANGING to change it now and then.
        image: binlog_row_image.
        """
        self._server = server
        self._dialect = dialect
        self._seed = seed
        self._statements = statements
        self._metadata = metadata
        self._image = image
        self._schemas = (f"diff{seed}", f"diff{seed}-b")
        self._tables = filter_of(self._schemas)
        self._tally = Tally()
        self._story: list[Step] = []

    def run(self) -> Tally:
        """Run the round and return its counts."""
        self._set_metadata("MINIMAL" if self._metadata == "CHANGING" else self._metadata)
        self._server.execute(f"SET GLOBAL binlog_row_image = {self._image}")
        store = f"canal_tsdb_{self._seed}"
        shared = {
            "canal.instance.tsdb.url": f"jdbc:mysql://{self._server.address}/{store}",
            "canal.instance.tsdb.dbUsername": ADMIN,
            "canal.instance.tsdb.dbPassword": ADMIN,
        }
        self._server.execute(f"CREATE DATABASE {store} CHARACTER SET utf8mb4")
        try:
            with ExitStack() as stack:
                one = stack.enter_context(self._node(shared))
                cursors = {"canal.file.data.dir": str(one.conf)}
                nodes = one, self._node(shared | cursors), self._node({})
                try:
                    self._run(*nodes, stack)
                except TooLate as error:
                    logs = "".join(node.log_file(DESTINATION)[-2000:] for node in nodes if node.alive())
                    self._tally.failures.append(self._told("a reader stopped", None, f"{error}\n{logs}"))
        finally:
            for schema in (*self._schemas, store):
                self._server.execute(f"DROP DATABASE IF EXISTS {quoted(schema)}")
        self._tally.statements = len(self._story)
        self._tally.not_taken = sum(bool(step.refused) for step in self._story)
        return self._tally

    def _node(self, properties: dict[str, str]) -> Node:
        where = {key: value for key, value in properties.items() if key == "canal.file.data.dir"}
        instance = follow(self._server, {key: value for key, value in properties.items() if key not in where})
        return Node({DESTINATION: instance}, properties=_SMALL_RING | where, environment={"TZ": "Europe/Berlin"})

    def _run(self, one: Node, two: Node, cold: Node, stack: ExitStack) -> None:
        oracle = Oracle(self._server, self._schemas)
        stack.callback(oracle.close)
        self._story = oracle.steps
        begin = oracle.position()
        warm = Follower(_WARM, one, self._tables, begin)
        lagging = Follower(_LAGGING, one, self._tables, begin)
        lagging.client.get_without_ack(1)
        lagging.client.rollback()
        batches = self._statements // BATCH
        middle = begin
        situation = "warm"
        steps = self._batches(oracle, batches)
        for number in range(batches):
            if number == batches // 3:
                self._follow(lagging, one, "lagging", oracle, oracle.mark())
                self._follow(warm, one, situation, oracle, oracle.marks)
                middle = oracle.position()
            if number == 2 * batches // 3:
                one.kill()
                stack.enter_context(two)
                for follower in (warm, lagging):
                    follower.move(two)
                situation = "taken over"
            node = two if situation == "taken over" else one
            with self._far_ahead(oracle, node, wanted=number % _AHEAD == _AHEAD - 1):
                next(steps)
                self._follow(warm, node, situation, oracle, oracle.mark())
        self._follow(lagging, two, "taken over", oracle, oracle.mark())
        for follower in (warm, lagging):
            follower.client.disconnect()
        two.kill()
        stack.enter_context(cold)
        for start in (middle, begin):
            self._read_cold(cold, oracle, start)

    def _batches(self, oracle: Oracle, count: int) -> Iterator[None]:
        """Run one batch of the script at each step."""
        conversation = script(self._seed, self._dialect, oracle.world)
        statement = next(conversation)
        for number in range(count):
            if number % _JOURNAL == 0:
                oracle.control("FLUSH BINARY LOGS")
            if self._metadata == "CHANGING" and number % 7 == 6:
                self._set_metadata("FULL" if number % 2 else "MINIMAL")
            for _ in range(BATCH):
                statement = conversation.send(oracle.run(statement))
            yield

    def _set_metadata(self, value: str) -> None:
        if not self._dialect.old:
            self._server.execute(f"SET GLOBAL binlog_row_metadata = {value}")

    # ---- situations

    def _follow(self, follower: Follower, node: Node, situation: str, oracle: Oracle, mark: int) -> None:
        got = until_mark(follower.client, mark)
        end = oracle.position()
        self._judge(situation, got, follower.at, end)
        if got.refused:
            follower.begin_anew(node, end)
        follower.at = end

    @contextmanager
    def _far_ahead(self, oracle: Oracle, node: Node, *, wanted: bool) -> Iterator[None]:
        """Open a private read at the newest position, and compare at the end what it has read."""
        if not wanted:
            yield
            return
        start = oracle.position()
        client = reading_from(node, _AHEAD_ID, self._tables, "latest")
        try:
            yield
            self._judge("ahead", until_mark(client, oracle.marks), start, oracle.position())
        finally:
            client.disconnect()

    def _read_cold(self, node: Node, oracle: Oracle, start: At) -> None:
        """Read from `start` to the end; after a refusal, behind the refused step."""
        end = oracle.position()
        mark = oracle.marks
        while True:
            client: SimpleConnector = reading_from(node, _COLD, self._tables, f"{start[0]}:{start[1]}")
            try:
                got = until_mark(client, mark)
            finally:
                client.disconnect()
            behind = self._judge("cold", got, start, end)
            if not got.refused or behind is None or behind <= start:
                return
            start = behind

    def _judge(self, situation: str, got: Got, start: At, end: At) -> At | None:
        """Compare what a reader got; return the position behind the step that it refused."""
        counts = self._tally.situations[situation]
        behind = None
        if got.refused:
            why = reason(situation, got.refused, excused=self._dialect.has("unlogged"))
            counts.refused[why] += 1
            refused_at = got.refused_at
            step = next((s for s in self._story if refused_at and s.start <= refused_at < s.end), None)
            if why.startswith(UNEXPLAINED):
                self._tally.failures.append(self._told(situation, step, got.refused))
            stop = step.start if step is not None else start
            behind = step.end if step is not None else None
            counts.skipped += sum(stop <= s.start and s.end <= (behind or end) for s in self._story)
            end = stop
        verdict = judge(self._story, got.rows, start, end, partial=self._image != "FULL")
        counts.rows += verdict.rows
        counts.wrong += len(verdict.wrong)
        self._tally.failures += [self._wrong(situation, wrong) for wrong in verdict.wrong]
        return behind

    def _wrong(self, situation: str, wrong: Wrong) -> str:
        return self._told(situation, wrong.step, f"{'.'.join(wrong.table)}: {wrong.text}", wrong.table[1])

    def _told(self, situation: str, step: Step | None, text: str, table: str = "") -> str:
        """Return a failure with everything that repeats it."""
        round_ = f"seed {self._seed}, metadata {self._metadata}, image {self._image}"
        head = f"{self._server.flavor} {self._server.version}, {round_}, {situation}"
        if step is None:
            return f"{head}: {text}"
        past = [each for each in self._story[: step.number] if not each.rows and table and table in str(each.sql)]
        story = "".join(f"\n    #{each.number} {'; '.join(each.sql)}" for each in past[-8:])
        return f"{head}, statement {step.number}:{story}\n    #{step.number} {'; '.join(step.sql)}\n    {text}"
