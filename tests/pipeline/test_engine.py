"""The engine on real servers, with a target in an SQLite file: kills, restored targets, other users of a client id."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from canal_ha.errors import ClientIdTaken, DataLoss, SinkRefused
from canal_ha.pipeline import reload, run_note
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.engine import PipelineEngine
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.targets import open_target
from lab import MySQL, Node, SqlServer, ZooKeeper, follow
from tests.beside import beside
from tests.pipeline.copies import Copies, copied, text
from tests.pipeline.driver import Pipeline, described, engine, run_once
from tests.waiting import until

pytestmark = pytest.mark.real


def selected(server: SqlServer, name: str) -> list[str]:
    """Return the rows of a table as `copied` does."""
    return sorted(text(row) for row in server.query(f"SELECT * FROM {name}"))


def create(server: SqlServer, database: str) -> str:
    """Create a table and return its name."""
    server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.a (id INT PRIMARY KEY, money DECIMAL(12,2), at DATETIME(3), name VARCHAR(20))",
    )
    return f"{database}.a"


def source(node: Node, database: str, **more: object) -> dict[str, object]:
    """Return the options of a source. Small portions make many of them."""
    return {"servers": node.address, "destination": database, "segmentBytes": 1 << 14, "fetchSize": 16, **more}


def writing(server: SqlServer, name: str) -> Any:
    """Write all the time: rows come, change, get other keys and go."""

    def write(stopping: threading.Event) -> None:
        random = Random(5)
        with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while not stopping.wait(0.003):
                for _ in range(random.randint(1, 5)):
                    key, other = random.randint(0, 300), random.randint(0, 300)
                    done = random.random()
                    if done < 0.6:
                        cursor.execute(f"REPLACE INTO {name} VALUES ({key}, {other}, NOW(3), 'ü{other}')")
                    elif done < 0.8:
                        cursor.execute(f"DELETE FROM {name} WHERE id = {key}")
                    else:
                        cursor.execute(f"UPDATE IGNORE {name} SET id = {other} WHERE id = {key}")
                connection.commit()

    return beside(write)


def test_existing_rows_then_changes_and_once_ends(source_server: SqlServer, database: str, tmp_path: Path) -> None:
    """`once` has everything that was there when it began, also if only other tables changed last."""
    name = create(source_server, database)
    source_server.execute(f"INSERT INTO {name} VALUES (1, 1.5, NOW(3), NULL), (2, 2, NULL, 'x')")
    with Node({database: follow(source_server)}) as node:
        pipeline = described(tmp_path, source(node, database, snapshot=name), "copies", tables=(name,))
        run_once(pipeline)
        assert copied(tmp_path / "copies", name) == selected(source_server, name)
        source_server.execute(
            f"UPDATE {name} SET money = 9 WHERE id = 1",
            f"INSERT INTO {name} SELECT id + 10, 1, NULL, 'y' FROM {name}",
            f"DELETE FROM {name} WHERE id = 2",
            f"CREATE TABLE {database}.other (id INT PRIMARY KEY)",
            f"INSERT INTO {database}.other VALUES (1)",
        )
        run_once(pipeline)
        assert copied(tmp_path / "copies", name) == selected(source_server, name)
        run_once(pipeline)
        assert copied(tmp_path / "copies", f"{database}.other") == []


def test_the_copy_is_exact_whatever_is_killed(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """The pipeline and the node are killed at random moments while rows change."""
    name = create(mysql, database)
    random = Random(1)
    with Node({database: follow(mysql)}) as node:
        pipeline = described(tmp_path, source(node, database), "copies", tables=(name,))
        run_once(pipeline)
        with writing(mysql, name):
            for killed in range(3):
                with Pipeline(pipeline) as process:
                    time.sleep(1.2 + random.random())
                    if killed == 1:
                        node.kill()
                        time.sleep(random.random() / 3)
                        node.start()
                        time.sleep(random.random())
                    process.process.kill()
        run_once(pipeline)
        assert copied(tmp_path / "copies", name) == selected(mysql, name)
        assert len(copied(tmp_path / "copies", name)) > 10


def test_a_stop_after_a_reload_ends_a_pipeline_whose_commit_hangs(
    mysql: MySQL, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without a reload, after the time that a commit gets."""
    name = create(mysql, database)
    monkeypatch.setattr("canal_ha.pipeline.flow.STOP_S", 0.2)
    hanging, ending, asked = threading.Event(), threading.Event(), threading.Event()
    with Node({database: follow(mysql)}) as node:
        pipeline = described(tmp_path, source(node, database), "parquet", "changelog", tables=(name,))
        target = open_target(pipeline)
        commit = target.commit

        def hang(portion: Portion) -> None:
            if portion.rows:
                hanging.set()
                ending.wait(60)
            commit(portion)

        def reread() -> Description:
            asked.set()
            return pipeline

        monkeypatch.setattr(target, "commit", hang)
        running = PipelineEngine(pipeline, target, reread)
        thread = threading.Thread(target=running.run, daemon=True)
        thread.start()
        try:
            until(lambda: any(state.progress for state in running.states), what="the flow works")
            mysql.execute(f"INSERT INTO {name} VALUES (1, 1, NULL, 'a')")
            assert hanging.wait(30)
            running.reload()
            assert asked.wait(30)
            time.sleep(0.5)
            running.stop()
            thread.join(5)
            assert not thread.is_alive()
        finally:
            ending.set()
            running.stop()
            thread.join(30)


def test_a_restored_target_stops_loudly(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """The changes that it lacks are named, and what to do."""
    name = create(mysql, database)
    with Node({database: follow(mysql)}) as node:
        pipeline = described(tmp_path, source(node, database), "copies", tables=(name,))
        run_once(pipeline)
        mysql.execute(f"INSERT INTO {name} VALUES (1, 1, NULL, 'a')")
        run_once(pipeline)
        shutil.copy(tmp_path / "copies", tmp_path / "older")
        mysql.execute(f"INSERT INTO {name} VALUES (2, 2, NULL, 'b')")
        run_once(pipeline)
        shutil.copy(tmp_path / "older", tmp_path / "copies")
        with pytest.raises(DataLoss, match=r"restored from an older copy.*canal-ha cursor set"):
            run_once(pipeline)


def test_two_targets_with_one_client_id_stop_loudly(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """The one that comes second, and one that runs beside it."""
    name = create(mysql, database)
    with Node({database: follow(mysql)}) as node:
        first = described(tmp_path / "first", source(node, database), "copies", tables=(name,))
        second = described(tmp_path / "second", source(node, database), "copies", tables=(name,))
        for each in (first, second):
            Path(each.target.options["path"]).parent.mkdir(exist_ok=True)
        run_once(first)
        mysql.execute(f"INSERT INTO {name} VALUES (1, 1, NULL, 'a')")
        run_once(first)
        with pytest.raises(ClientIdTaken, match="clientId of its own"):
            run_once(second)


def test_two_pipelines_side_by_side_stop_loudly(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """Without ZooKeeper nobody stands by: each would miss what the other reads."""
    name = create(mysql, database)
    ended: list[Exception] = []

    def run(description: Description) -> None:
        try:
            engine(description).run()
        except Exception as error:
            ended.append(error)

    with Node({database: follow(mysql)}) as node, writing(mysql, name):
        for each in ("first", "second"):
            (tmp_path / each).mkdir()
            description = described(tmp_path / each, source(node, database), "copies", tables=(name,))
            threading.Thread(target=run, args=(description,), daemon=True).start()
        until(lambda: bool(ended), seconds=40, what="the end of one of them")
    assert isinstance(ended[0], ClientIdTaken)


def test_another_process_takes_over(mysql: MySQL, zookeeper: ZooKeeper, database: str, tmp_path: Path) -> None:
    """With ZooKeeper the second process of a pipeline stands by; the copy is exact after the first one is killed."""
    name = create(mysql, database)
    with Node({database: follow(mysql)}, zk_servers=zookeeper.hosts, wait_for=[database]):
        where = {"zkServers": zookeeper.hosts, "destination": database, "sessionTimeoutMs": 2000}
        pipeline = described(tmp_path, where, "copies", tables=(name,))
        run_once(pipeline)
        with writing(mysql, name):
            with Pipeline(pipeline) as first:
                until(lambda: len(copied(tmp_path / "copies", name)) > 10)
                with Pipeline(pipeline) as second:
                    until(lambda: "client.standby" in second.log.read_text(), seconds=40, what="the second one")
                    first.process.kill()
                    mysql.execute(f"REPLACE INTO {name} VALUES (1000, 1, NULL, 'behind')")
                    until(lambda: any("behind" in row for row in copied(tmp_path / "copies", name)), seconds=40)
            assert "ClientIdTaken" not in first.tail()
        run_once(pipeline)
        assert copied(tmp_path / "copies", name) == selected(mysql, name)


def test_a_process_that_stands_by_overwrote_the_notes_of_the_active_one(
    mysql: MySQL, zookeeper: ZooKeeper, database: str, tmp_path: Path
) -> None:
    """Both use one directory: what the process runs with, and what became of the file, is the active one's to tell."""
    name = create(mysql, database)
    with Node({database: follow(mysql)}, zk_servers=zookeeper.hosts, wait_for=[database]):
        where = {"zkServers": zookeeper.hosts, "destination": database, "sessionTimeoutMs": 2000}
        pipeline = described(tmp_path, where, "copies", tables=(name,))
        with Pipeline(pipeline) as first:
            until(lambda: run_note.read(pipeline.state) is not None, seconds=40, what="a note")
            reload.keep(pipeline.state, reload.note_of(pipeline, "it was refused"))
            processes: set[int] = set()
            second = PipelineEngine(pipeline, Copies(pipeline), reread=lambda: pipeline)
            thread = threading.Thread(target=second.run, kwargs={"show": lambda _: processes.add(noted_by(pipeline))})
            thread.start()
            until(lambda: bool(second.states) and second.states[0].standing_by, seconds=40, what="the second one")
            time.sleep(1.5)
            assert (processes, reload.noted(pipeline)) == ({first.process.pid}, "it was refused")
            first.process.kill()
            until(lambda: noted_by(pipeline) == os.getpid(), seconds=40, what="a note of the second one")
            until(lambda: not reload.noted(pipeline), what="its note of the file")
            second.stop()
            thread.join(30)
        note = run_note.read(pipeline.state)
        assert note is not None
        assert note.ended


def noted_by(pipeline: Description) -> int:
    """Return the process of the last note."""
    note = run_note.read(pipeline.state)
    return note.process if note is not None else 0


def test_several_destinations_go_side_by_side(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """Each has its own progress in one target."""
    name = create(mysql, database)
    other = create(mysql, f"{database}x")
    with Node({database: follow(mysql), f"{database}x": follow(mysql)}) as node:
        where = source(node, f"{database},{database}x", filter=f"{database}x?\\..*")
        pipeline = described(tmp_path, where, "copies", tables=(name, other))
        run_once(pipeline)
        mysql.execute(*(f"INSERT INTO {each} VALUES (1, 1, NULL, 'a'), (2, 1, NULL, 'b')" for each in (name, other)))
        running = engine(pipeline)
        running.run(once=True)
        assert [(state.destination, state.rows) for state in running.states] == [(database, 4), (f"{database}x", 4)]
        assert copied(tmp_path / "copies", name) == selected(mysql, name)
        assert copied(tmp_path / "copies", other) == selected(mysql, other)


def test_a_target_that_does_not_answer_is_tried_again(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """The state says so meanwhile, and no row is lost or doubled."""
    name = create(mysql, database)
    with Node({database: follow(mysql)}) as node:
        pipeline = described(tmp_path, source(node, database), "copies", tables=(name,))
        run_once(pipeline)
        running = engine(pipeline)
        thread = threading.Thread(target=running.run)
        thread.start()
        until(lambda: bool(running.states) and running.states[0].lag_s == 0)
        with sqlite3.connect(tmp_path / "copies", isolation_level=None) as blocker:
            blocker.execute("BEGIN EXCLUSIVE")
            mysql.execute(f"INSERT INTO {name} VALUES (1, 1, NULL, 'a')")
            until(lambda: "locked" in running.states[0].waiting)
            mysql.execute(f"INSERT INTO {name} VALUES (2, 1, NULL, 'b')")
            blocker.execute("ROLLBACK")
        until(lambda: len(copied(tmp_path / "copies", name)) == 2)
        until(lambda: running.states[0].lag_s == 0)
        assert (running.states[0].waiting, running.states[0].rows) == ("", 2)
        running.stop()
        thread.join()
        assert copied(tmp_path / "copies", name) == selected(mysql, name)


def test_rows_without_all_columns_are_refused(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """A session with binlog_row_image=MINIMAL does not make columns NULL."""
    name = create(mysql, database)
    with Node({database: follow(mysql)}) as node:
        pipeline = described(tmp_path, source(node, database), "copies", tables=(name,))
        run_once(pipeline)
        mysql.execute(f"INSERT INTO {name} VALUES (1, 1, NULL, 'a')")
        run_once(pipeline)
        for image in ("MINIMAL", "NOBLOB"):
            with mysql.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"SET SESSION binlog_row_image = {image}")
                cursor.execute(f"UPDATE {name} SET money = money + 1 WHERE id = 1")
                connection.commit()
        with pytest.raises(SinkRefused, match="binlog_row_image = FULL"):
            run_once(pipeline)


def test_new_rows_without_the_last_columns_are_refused(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """The first row after a start seems to be whole; its missing column has a default."""
    name = f"{database}.t"
    mysql.execute(
        f"CREATE DATABASE {database}", f"CREATE TABLE {name} (id INT PRIMARY KEY, name VARCHAR(9) DEFAULT 'x')"
    )
    with Node({database: follow(mysql)}) as node:
        pipeline = described(tmp_path, source(node, database), "copies", tables=(name,))
        run_once(pipeline)
        with mysql.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION binlog_row_image = MINIMAL")
            cursor.execute(f"INSERT INTO {name} (id) VALUES (1)")
            connection.commit()
        with pytest.raises(SinkRefused, match="binlog_row_image = FULL"):
            run_once(pipeline)


def test_a_swap_of_tables_fills_the_copy_again(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """With a snapshot, the table is read again; without one, the pipeline stops and says so."""
    name = create(mysql, database)
    mysql.execute(
        f"INSERT INTO {name} VALUES (1, 1, NULL, 'a'), (2, 2, NULL, 'b')",
        f"CREATE TABLE {database}._a_gho LIKE {name}",
    )
    with Node({database: follow(mysql)}) as node:
        with_snapshot = described(tmp_path, source(node, database, snapshot="initial"), "copies", tables=(name,))
        (tmp_path / "2").mkdir()
        without = described(tmp_path / "2", source(node, database, clientId=7), "copies", tables=(name,))
        run_once(with_snapshot)
        run_once(without)
        mysql.execute(
            f"INSERT INTO {database}._a_gho SELECT * FROM {name}",
            f"RENAME TABLE {name} TO {database}._a_del, {database}._a_gho TO {name}",
            f"UPDATE {name} SET money = 5 WHERE id = 2",
        )
        run_once(with_snapshot)
        assert copied(tmp_path / "copies", name) == selected(mysql, name)
        with pytest.raises(SinkRefused, match="snapshot: initial"):
            run_once(without)
        mysql.execute(f"ALTER TABLE {name} ADD made DATETIME(6) DEFAULT NOW(6), ADD twice INT AS (id * 2) STORED")
        run_once(with_snapshot)
        assert copied(tmp_path / "copies", name) == selected(mysql, name)


def test_sigterm_ends_in_order(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """After an orderly stop everything that was committed is acknowledged."""
    name = create(mysql, database)
    with Node({database: follow(mysql)}) as node:
        pipeline = described(tmp_path, source(node, database), "copies", tables=(name,))
        run_once(pipeline)
        with Pipeline(pipeline) as process:
            mysql.execute(f"INSERT INTO {name} VALUES (1, 1, NULL, 'a')")
            until(lambda: bool(copied(tmp_path / "copies", name)))
            process.process.terminate()
            assert process.wait() == 0
        assert process.tail().endswith("ended")


def test_the_states_tell_lag_and_position(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """In the end nothing waits."""
    name = create(mysql, database)
    with Node({database: follow(mysql)}) as node:
        pipeline = described(tmp_path, source(node, database), "copies", tables=(name,))
        run_once(pipeline)
        mysql.execute(f"INSERT INTO {name} VALUES (1, 1, NULL, 'a')")
        running = engine(pipeline)
        running.run(once=True)
        [state] = running.states
        assert (state.destination, state.rows, state.done, state.lag_s) == (database, 1, True, 0.0)
        assert state.progress is not None
        assert state.progress.seq == 1
