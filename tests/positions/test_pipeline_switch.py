"""What a pipeline's target gets when the source switches and the pipeline dies before it acknowledges."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from canal_ha.errors import PipelineFailed
from canal_ha.pipeline.engine import PipelineEngine
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from lab import MariaDB, MySQL, Node, SqlServer
from tests.pipeline.driver import described
from tests.positions.group import TEMPLATE, following
from tests.positions.pair import NOTHING, Compared, Writer, paired
from tests.positions.test_switch import switched
from tests.waiting import until

pytestmark = pytest.mark.real


class Kept:
    """A target in memory. ids: of the rows, in order. dies: behind the next commit with rows, once."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.dies = False
        self._progress: Progress | None = None

    def check(self) -> str:
        return "memory"

    def stored(self, destination: str) -> Progress | None:
        return self._progress

    progress = stored

    def commit(self, portion: Portion) -> None:
        for entry in portion.row_entries():
            self.ids += [int(after[0] or 0) for _, after in entry.rows]
        self._progress = portion.progress
        if self.dies and portion.rows:
            self.dies = False
            raise PipelineFailed("died")

    def close(self) -> None: ...


class Running:
    """The pipeline into a target, from the start until it dies or the block ends."""

    def __init__(self, directory: Path, address: str, target: Kept) -> None:
        pipeline = described(directory, {"servers": address, "destination": "example"}, "copies", tables=("shop.t",))
        self._engine = PipelineEngine(pipeline, target)
        self._thread = threading.Thread(target=self._run)
        self.died = False

    def _run(self) -> None:
        try:
            self._engine.run()
        except PipelineFailed:
            self.died = True

    def __enter__(self) -> Running:
        self._thread.start()
        until(lambda: bool(self._engine.states and self._engine.states[0].progress), what="the pipeline to begin")
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.stop()
        self._thread.join()


@pytest.mark.nightly("a stream on recorded segments of two servers, tests/instance/test_stream.py")
def test_rows_committed_behind_a_switch_do_not_come_twice_although_never_acknowledged(tmp_path: Path) -> None:
    """The servers have no GTIDs in common: the target's progress has to name the server of its position."""
    target = Kept()
    with paired(MariaDB, gtid=False) as pair, pair.node().start() as node:
        with Running(tmp_path, node.address, target) as first:
            before = Writer(pair.master, 1)
            before.write(20)
            until(lambda: len(target.ids) >= 20, what="the master's rows")
            pair.promote()
            switched(node, "standby")
            behind = Writer(pair.standby, 101)
            behind.write(20)
            until(lambda: 120 in target.ids, what="the standby's rows")
            target.dies = True
            behind.write(5)
            until(lambda: first.died, what="the end of the pipeline")
        with Running(tmp_path, node.address, target):
            behind.write(5)
            until(lambda: 130 in target.ids, what="the last rows")
        assert Compared.of(target.ids, [*before.written, *behind.written]) == NOTHING, node.log_file("example")


@pytest.mark.nightly("an intake on recorded entries of two servers, tests/pipeline/test_committed.py")
def test_rows_with_the_numbers_of_transactions_that_the_new_master_lacks_are_not_left_out(tmp_path: Path) -> None:
    """The standby takes over without the last five transactions, and writes five with the same numbers."""
    target = Kept()
    with paired(MariaDB, gtid=True) as pair, pair.node().start() as node, Running(tmp_path, node.address, target):
        Writer(pair.master, 1).write(20)
        until(lambda: 20 in target.ids, what="the master's rows")
        pair.caught_up()
        pair.cut_off()
        Writer(pair.master, 51).write(5)
        until(lambda: 55 in target.ids, what="the rows that the standby lacks")
        behind = Writer(pair.standby, 101)
        behind.write(5)
        switched(node, "standby")
        behind.write(5)
        until(lambda: 110 in target.ids, what="the standby's last row")
        assert set(behind.written) <= set(target.ids), node.log_file("example")


SECOND = 1_700_000_000  # s since 1970, of all transactions


def insert(server: SqlServer, *keys: int) -> None:
    """Insert rows, each in a transaction of SECOND."""
    server.execute(f"SET timestamp = {SECOND}", *(f"INSERT INTO shop.t VALUES ({key}, 'x')" for key in keys))


@pytest.mark.nightly("an intake on such entries, tests/pipeline/test_committed.py")
@pytest.mark.parametrize(("make", "gtid"), [(MySQL, True), (MySQL, False), (MariaDB, True)])
def test_rows_of_a_merged_source_at_lower_positions_are_not_taken_for_known(
    tmp_path: Path, make: type[SqlServer], gtid: bool
) -> None:
    """A standby has the same rows at lower positions, and in a second all times are the same."""
    target = Kept()
    with paired(make, gtid=gtid) as pair, MySQL(server_id=7) as other:
        servers = {1: pair.master, 2: other}
        more = {"standby1_address": pair.standby.address, "gtidon": str(gtid).lower()}
        properties = {"canal.instance.example.spring.xml": TEMPLATE}
        other.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, word VARCHAR(20))")
        with Node({"example": following(servers, **more)}, properties=properties) as node:
            with Running(tmp_path, node.address, target):
                insert(other, 1001)
                until(lambda: 1001 in target.ids, what="the other source's row")
                pair.master.execute(*["FLUSH BINARY LOGS"] * 5)
                insert(pair.master, *range(1, 20))
                until(lambda: 19 in target.ids, what="the master's rows")
            node.stop()  # it has not read the next rows
            insert(pair.master, 20, 21)
            pair.caught_up()
            pair.master.kill()
            node.start()
            switched(node, "standby", "example", "--source", "1")
            with Running(tmp_path, node.address, target):
                insert(pair.standby, 22)
                until(lambda: 22 in target.ids, what="the standby's row")
        assert {20, 21} <= set(target.ids), node.log_file("example")


@pytest.mark.nightly("an intake on such entries, tests/pipeline/test_committed.py")
def test_rows_of_merged_sources_with_the_same_server_id_are_not_taken_for_known(tmp_path: Path) -> None:
    """Two servers that know nothing of each other often have the same id. In a second all times are the same."""
    target = Kept()
    with MySQL(gtid=False) as one, MySQL(gtid=False) as other:
        for server in (one, other):
            server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, word VARCHAR(20))")
        properties = {"canal.instance.example.spring.xml": TEMPLATE}
        with Node({"example": following({1: one, 2: other})}, properties=properties) as node:
            with Running(tmp_path, node.address, target):
                insert(other, 1001)
                until(lambda: 1001 in target.ids, what="the second source's row")
                insert(one, *range(1, 20))
                until(lambda: 19 in target.ids, what="the first source's rows")
            insert(other, 1002, 1003)
            with Running(tmp_path, node.address, target):
                other.execute("INSERT INTO shop.t VALUES (1004, 'x')")
                until(lambda: 1004 in target.ids, what="the last row")
        assert {1002, 1003} <= set(target.ids), node.log_file("example")
