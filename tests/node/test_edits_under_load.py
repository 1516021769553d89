"""Instance files and canal.properties are edited while rows flow: no row is lost, and nobody else is interrupted."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from threading import Event

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import rows_of
from canal_ha.errors import CanalError
from lab import MariaDB, Node, follow
from lab.ports import LOOPBACK
from tests.beside import beside
from tests.node.following import column
from tests.waiting import until

pytestmark = pytest.mark.real

SIZE = "canal.instance.memory.buffer.size"
SCAN = {"canal.auto.scan": "true", "canal.auto.scan.interval": "0.1"}
PAUSE_S = 0.005  # between two transactions


class Reader:
    """Reads a destination until it is told to stop; after an error it connects again, as clients do.

    ids: every id that it has read, in order of arrival.
    interruptions: errors so far.
    """

    def __init__(self, node: Node, destination: str, database: str) -> None:
        self._node = node
        self._destination = destination
        self._database = database
        self.subscribed = Event()
        self.ids: list[int] = []
        self.interruptions = 0

    def read(self, stopping: Event) -> None:
        """Read until told to stop; see tests.beside."""
        while not stopping.is_set():
            try:
                with SimpleConnector(LOOPBACK, self._node.port, self._destination, 1001) as client:
                    client.subscribe(rf"{self._database}\.t")
                    self.subscribed.set()
                    self._read(client, stopping)
            except (CanalError, OSError):
                self.interruptions += 1
                time.sleep(0.05)

    def _read(self, client: SimpleConnector, stopping: Event) -> None:
        while not stopping.is_set():
            message = client.get_without_ack(1000, 200)
            if message:
                self.ids += column(row for row in rows_of(message.entries) if row.table)
                client.ack(message.id)


class Writer:
    """Commits rows with the ids 1, 2, 3, … until it is told to stop. last: the last id that is committed."""

    def __init__(self, server: MariaDB, database: str) -> None:
        self._server = server
        self._database = database
        self.last = 0

    def write(self, stopping: Event) -> None:
        """Write until told to stop; see tests.beside."""
        with self._server.connect() as connection, connection.cursor() as cursor:
            while not stopping.is_set():
                cursor.execute(f"INSERT INTO {self._database}.t VALUES ({self.last + 1})")
                connection.commit()
                self.last += 1
                time.sleep(PAUSE_S)


def every_edit(node: Node, mariadb: MariaDB, edited: Reader, rounds: int) -> None:
    """Change, break, repair, remove and restore the file of `edited`; add and remove another; edit the defaults."""
    main = node.conf / "canal.properties"
    path = node.conf / "edited" / "instance.properties"
    defaults, good = main.read_text(), path.read_text()

    def size() -> int:
        return next(
            (each["buffer_size"] for each in node.status()["destinations"] if each["destination"] == "edited"), 0
        )

    def alarms() -> list[str]:
        return [each["alarm"] for each in node.status()["alarms"]]

    for number in range(rounds):
        wanted = 512 + number
        path.write_text(f"{good}{SIZE} = {wanted}\n")
        until(lambda wanted=wanted: size() == wanted, what="the change")  # type: ignore[misc]
        path.write_text(f"{good}{SIZE} = lots\n")
        until(lambda: alarms() == ["refused"], what="the refusal")
        before = len(edited.ids)
        until(lambda before=before: len(edited.ids) > before, what="rows beside the alarm")  # type: ignore[misc]
        path.write_text(f"# repaired\n{good}{SIZE} = {wanted}\n")
        until(lambda: not alarms(), what="the repair")
        shutil.move(path, path.with_name("kept"))
        until(lambda: alarms() == ["gone"], what="the removal")
        shutil.move(path.with_name("kept"), path)
        until(lambda: "edited" in node.running() and not alarms(), what="the return")
        added = node.conf / "added" / "instance.properties"
        added.parent.mkdir(exist_ok=True)
        added.write_text(good)
        until(lambda: "added" in node.running(), what="the new destination")
        added.unlink()  # the directory stays: it has the cursor
        until(lambda: "added" not in node.running(), what="its end")
        main.write_text(f"{defaults}canal.instance.stream.max = none\n")
        until(lambda: alarms() == ["refused"], what="the refusal of a default")
        main.write_text(f"{defaults}canal.instance.edited.lazy = {'false' if number % 2 else 'true'}\n")
        until(lambda: not alarms(), what="the default")
        before = len(edited.ids)
        until(lambda before=before: len(edited.ids) > before, what="rows after all edits")  # type: ignore[misc]


def edits_lose_nothing(mariadb: MariaDB, database: str, rounds: int) -> None:
    """Edit `rounds` times under load, and compare what three readers got with what was committed."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    destinations = {name: follow(mariadb) for name in ("edited", "one", "other")}
    with Node(destinations, properties=SCAN) as node:
        edited, *others = readers = [Reader(node, name, database) for name in destinations]
        writer = Writer(mariadb, database)
        with ExitStack() as reading:
            for reader in readers:
                reading.enter_context(beside(reader.read))
            for reader in readers:
                assert reader.subscribed.wait(20)
            with beside(writer.write):
                every_edit(node, mariadb, edited, rounds)
            for reader in readers:
                until(lambda reader=reader: writer.last in reader.ids, what="the last row")  # type: ignore[misc]
        committed = list(range(1, writer.last + 1))
        assert [other.ids for other in others] == [committed, committed]
        assert [other.interruptions for other in others] == [0, 0]
        assert sorted(set(edited.ids)) == committed
        assert [node.log_file(name).count("instance.started") for name in ("one", "other")] == [1, 1]
        print(f"{len(committed)} rows, {edited.interruptions} interruptions of `edited`, 0 of the others")


def test_edits_under_load_lose_nothing(mariadb: MariaDB, database: str) -> None:
    """The edited destination delivers every row, and the readers of the others keep their connections."""
    edits_lose_nothing(mariadb, database, 1)


@pytest.mark.nightly("test_edits_under_load_lose_nothing: one round")
def test_many_edits_under_load_lose_nothing(mariadb: MariaDB, database: str) -> None:
    """The same twelve times."""
    edits_lose_nothing(mariadb, database, 12)
