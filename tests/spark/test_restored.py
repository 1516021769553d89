"""A spool restored from a copy, and two spools on one client id: reported at once with a remedy, and repaired."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.discovery import split_address
from canal_ha.client.rows import rows_of
from canal_ha.errors import CanalError, ClientIdTaken, DataLoss
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.options import parse
from canal_ha.spark import segments, tailer
from canal_ha.spark.entries import changes_of
from canal_ha.spark.spool import newest_manifest
from canal_ha.spark.steps import unobserved
from canal_ha.spark.storage import open_storage
from canal_ha.spark.tailer import Tailer
from lab import MariaDB, Node
from lab.node import PROGRAM
from tests.waiting import until

CLIENT = 7
pytestmark = pytest.mark.real


class Reader:
    """Tailers of one destination in their own spools."""

    def __init__(self, node: Node, server: MariaDB, database: str, directory: Path) -> None:
        self.node = node
        self.database = database
        self.directory = directory
        self._server = server
        self._started: list[Tailer] = []
        self._next = 0

    def start(self, spool: str = "spool", **more: object) -> Tailer:
        """Start and return the next tailer of this spool."""
        given = {
            "servers": self.node.address,
            "destination": self.database,
            "clientId": CLIENT,
            "spoolDir": self.directory / spool,
            **more,
        }
        options = parse({name: str(value) for name, value in given.items()})
        storage = open_storage(options.spool_dir, self.database, str(CLIENT))

        def dial(judge: Callable[[LogPosition | None], None]) -> ClusterConnector:
            return ClusterConnector(
                [self.node.address],
                self.database,
                CLIENT,
                filter=options.filter,
                call_timeout_s=5,
                rollback_on_disconnect=True,
                judge=judge,
            )

        made = Tailer(options, self.database, storage, unobserved, dial)
        self._started.append(made)
        made.start()
        return made

    def insert(self, count: int) -> None:
        """Insert rows, each in its own transaction."""
        for _ in range(count):
            self._next += 1
            self._server.execute(f"INSERT INTO {self.database}.t VALUES ({self._next}, 0)")

    def rows(self, spool: str = "spool") -> list[int]:
        """Return the ids that the spool holds on disk, in order."""
        storage = open_storage(str(self.directory / spool), self.database, str(CLIENT))
        manifest = newest_manifest(storage)
        found: list[int] = []
        for segment in manifest.segments if manifest else ():
            try:
                contents = segments.decode(storage.read(segment.name), segment.name)
            except FileNotFoundError:  # its writer has started again
                continue
            found += [int(row[0] or -1) for change in changes_of(contents.frames, segment.name) for row in change.after]
        return found

    def has(self, last: int, spool: str = "spool") -> None:
        """Wait until the spool holds the row `last`."""
        until(lambda: last in self.rows(spool), what=f"row {last}", seconds=30)

    def acknowledged(self) -> bool:
        """Return whether no batch is in flight."""
        [found] = [each for each in self.node.status()["destinations"] if each["destination"] == self.database]
        return all(not each["batches"] for each in found["streams"] if each["client_id"] == CLIENT)

    def copy(self, source: str, target: str) -> None:
        """Replace the spool `target` by a copy of `source`."""
        shutil.rmtree(self.directory / target, ignore_errors=True)
        shutil.copytree(self.directory / source, self.directory / target)

    def set_cursor(self, problem: CanalError) -> None:
        """Run the command that the error names. The node stops for it, because its files hold the cursors."""
        command = str(problem).partition("`canal-ha ")[2].partition("`")[0].replace("DIR", str(self.node.conf))
        self.node.stop()
        subprocess.run([PROGRAM, *command.split(), "--yes"], check=True, capture_output=True)
        self.node.start()

    def stop(self) -> None:
        """Stop all tailers."""
        for each in self._started:
            each.stop()
        self._started.clear()


@pytest.fixture
def reader(node: Node, mariadb: MariaDB, database: str, tmp_path: Path) -> Iterator[Reader]:
    """Yield a Reader on its own node."""
    made = Reader(node, mariadb, database, tmp_path)
    yield made
    made.stop()


def refusal(made: Tailer, kind: type[CanalError]) -> CanalError:
    """Wait for the error that ends a tailer and return it."""
    found: list[CanalError] = []

    def ended() -> bool:
        try:
            made.manifest  # noqa: B018  # it raises
        except kind as error:
            found.append(error)
        return bool(found)

    until(ended, what=kind.__name__, seconds=30)
    return found[0]


def restored(reader: Reader) -> None:
    """Write 3 rows, copy the spool, write 4 rows with two writers, restore the copy, and insert 2 rows."""
    reader.start()
    reader.insert(3)
    reader.has(3)
    reader.stop()
    reader.copy("spool", "copy")
    for _ in range(2):
        reader.start()
        reader.insert(2)
        reader.has(reader._next)
        until(reader.acknowledged, what="acknowledgement")
        reader.stop()
    reader.copy("copy", "spool")
    reader.insert(2)


def test_a_restored_spool_ends_the_query_until_the_cursor_is_set_back(reader: Reader) -> None:
    """Each start reports the missing rows, also in the manifest. The command in the error brings the rows again."""
    restored(reader)
    for _ in range(2):
        problem = refusal(reader.start(), DataLoss)
        assert "restored from an older copy" in str(problem)
        assert "\n" not in str(problem)
        reader.stop()
        assert reader.rows() == [1, 2, 3]
        manifest = newest_manifest(open_storage(str(reader.directory / "spool"), reader.database, str(CLIENT)))
        assert manifest is not None
        assert manifest.problem == str(problem)
    reader.set_cursor(problem)
    made = reader.start()
    reader.has(9)
    assert reader.rows() == list(range(1, 10))
    assert made.manifest is not None
    assert made.manifest.problem == ""
    assert all(writer.follows for writer in made.manifest.lineage.writers)


def test_a_restored_spool_goes_on_behind_the_gap_when_told(reader: Reader) -> None:
    """failOnDataLoss=false accepts the gap, as for every loss. Afterwards the spool works like any other."""
    restored(reader)
    reader.start(failOnDataLoss="false")
    reader.has(9)
    until(reader.acknowledged, what="acknowledgement")
    assert reader.rows() == [1, 2, 3, 8, 9]
    reader.stop()
    reader.start()
    reader.insert(1)
    reader.has(10)


def test_a_second_spool_on_a_client_id_takes_nothing(reader: Reader) -> None:
    """The second spool reads nothing, neither beside the first nor in its place; the first continues undisturbed."""
    first = reader.start()
    reader.insert(3)
    reader.has(3)
    until(reader.acknowledged, what="acknowledgement")
    for filter in ("", r"nothing\..*", ""):
        problem = refusal(reader.start("other", filter=filter), ClientIdTaken)
        reader.insert(2)
    assert first.manifest is not None
    assert first.manifest.spool in str(problem)
    mine = newest_manifest(open_storage(str(reader.directory / "other"), reader.database, str(CLIENT)))
    assert mine is not None
    assert mine.spool in str(problem)
    reader.has(9)
    reader.stop()
    refusal(reader.start("other"), ClientIdTaken)
    reader.start()
    reader.insert(1)
    reader.has(10)
    assert reader.rows() == list(range(1, 11))
    assert reader.rows("other") == []


def test_rows_that_another_client_acknowledged_are_missed(reader: Reader) -> None:
    """The other client's cursor has no mark, so the positions show the loss. The command in the error repairs it."""
    reader.start()
    reader.insert(3)
    reader.has(3)
    reader.stop()
    reader.insert(3)
    with SimpleConnector(*split_address(reader.node.address), reader.database, CLIENT, filter="") as other:
        seen = 0
        while seen < 3:
            seen += sum(row.after is not None for row in rows_of(other.get(10, 200)))
    problem = refusal(reader.start(), DataLoss)
    assert "another client or an operator" in str(problem)
    reader.stop()
    reader.set_cursor(problem)
    reader.start()
    reader.has(6)
    assert reader.rows() == list(range(1, 7))


def test_a_former_version_without_marks_is_followed(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cursor without a mark is accepted if it is not after the spool's end."""
    with monkeypatch.context() as former:
        former.setattr(tailer, "mark", lambda manifest: "")
        reader.start()
        reader.insert(3)
        reader.has(3)
        until(reader.acknowledged, what="acknowledgement")
        reader.stop()
    reader.start()
    reader.insert(1)
    reader.has(4)
    assert reader.rows() == [1, 2, 3, 4]


def test_a_node_that_dies_under_the_reader_raises_no_alarm(reader: Reader) -> None:
    """The node's stored cursor is before the spool's end; entries that come again are dropped."""
    made = reader.start()
    for _ in range(3):
        reader.insert(3)
        reader.has(reader._next)
        reader.node.kill()
        reader.node.start()
    reader.insert(1)
    reader.has(10)
    assert reader.rows() == list(range(1, 11))
    assert made.manifest is not None
    assert made.manifest.server, "the spool must know whose binlog its end is a place in"
