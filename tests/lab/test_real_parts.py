"""The launchers themselves, on real servers."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from lab import Ensemble, MariaDB, MySQL, Process, SqlServer, ZooKeeper

pytestmark = pytest.mark.real


def test_database_servers_write_row_events(source_server: SqlServer, database: str) -> None:
    """The server writes full row images and metadata in UTC, and statements move its position."""
    settings = source_server.query(
        "SELECT @@binlog_format f, @@binlog_row_image i, @@binlog_row_metadata m, @@time_zone z, @@sql_mode s"
    )[0]
    assert settings == {"f": "ROW", "i": "FULL", "m": "FULL", "z": "+00:00", "s": "NO_ENGINE_SUBSTITUTION"}
    before = source_server.position()
    source_server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (a int)")
    assert source_server.position() > before
    print(f"{source_server.flavor} {source_server.version} started in {source_server.start_seconds:.2f} s")


def test_canal_user_can_replicate_and_read(source_server: SqlServer) -> None:
    """The replication user logs in and sees positions."""
    statement = "SHOW BINARY LOG STATUS" if source_server.flavor == "mysql" else "SHOW MASTER STATUS"
    assert source_server.query(statement, user="canal", password="canal")[0]["File"].startswith("mysql-bin.")


@pytest.mark.parametrize("kind", [MySQL, MariaDB])
def test_database_server_keeps_port_and_rows_over_crash_and_pause(kind: type[MySQL] | type[MariaDB]) -> None:
    """kill() loses no committed row, restart() keeps the port, and pause() leaves the process alive."""
    with kind(row_metadata="MINIMAL", gtid=False, server_id=7) as server:
        assert server.query("SELECT @@server_id i, @@binlog_row_metadata m")[0] == {"i": 7, "m": "MINIMAL"}
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a int primary key)", "INSERT INTO d.t VALUES (1)")
        port = server.port
        server.kill()
        assert not server.alive()
        server.start()
        server.pause()
        assert server.alive()
        server.resume()
        server.restart()
        assert server.port == port
        assert server.query("SELECT a FROM d.t") == [{"a": 1}]
        assert len(server.journals()) == 3
    assert not server.directory.exists()


def test_ensemble_elects_a_new_leader(ensemble: Ensemble) -> None:
    """When the leader is killed, another node leads and accepts writes; the restarted node follows it."""
    print(f"ensemble started in {ensemble.start_seconds:.2f} s")
    client = KazooClient(hosts=ensemble.hosts, timeout=2.0)
    client.start()
    first = ensemble.leader()
    assert len(ensemble.followers()) == 2
    first.kill()
    assert ensemble.leader() is not first
    client.retry(client.create, "/written-without-the-first-leader")
    first.start()
    assert first.mode() == "follower"
    client.stop()
    client.close()


def test_one_node_grants_short_sessions(zookeeper: ZooKeeper) -> None:
    """ZooKeeper grants a session time-out of one second."""
    print(f"zookeeper started in {zookeeper.start_seconds:.2f} s")
    client = KazooClient(hosts=zookeeper.hosts, timeout=1.0)
    client.start()
    assert client._session_timeout == 1000  # kazoo has no public name for it
    client.stop()
    client.close()


def test_servers_end_with_their_starter(tmp_path: Path) -> None:
    """When the starting process is killed, its server ends."""
    program = "from lab import ZooKeeper; import time; print(ZooKeeper().start().pid, flush=True); time.sleep(99)"
    starter = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout is not None
    server = int(starter.stdout.readline())
    os.kill(server, 0)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    deadline = time.monotonic() + 10
    while _exists(server) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _exists(server)


def _exists(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_failure_to_start_says_why() -> None:
    """The error for a server that ends while starting has its exit code and its output."""

    class Broken(Process):
        def command(self) -> list[str]:
            return ["sh", "-c", "echo the disk is on fire; exit 3"]

        def ready(self) -> bool:
            return False

    with pytest.raises(Exception, match=r"(?s)code 3 .*the disk is on fire"):
        Broken("broken", 0).start()
