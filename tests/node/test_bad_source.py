"""Sources that refuse a node until a person runs the statement that the message names; sources that stop."""

from __future__ import annotations

import re
from urllib.request import urlopen

import pytest

from canal_ha.cli.status import problems
from canal_ha.errors import ServerRefused
from lab import MariaDB, MySQL, Node, SqlServer, follow
from tests.node.following import column, destination_of, following, read, silence, stream_of
from tests.waiting import until

pytestmark = pytest.mark.real

SOURCES = {"mysql": MySQL, "mariadb": MariaDB}


def complaint(node: Node, destination: str, containing: str) -> str:
    """Wait until the destination's source_error contains a text, check that the log has it once, and return it."""

    def look() -> str | None:
        error = str(destination_of(node, destination)["source_error"])
        return error if containing in error else None

    error = until(look, what=f"{containing!r} in {destination}'s source_error")
    quoted = error.replace("\\", "\\\\").replace('"', '\\"')
    assert node.log_file(destination).count(f'source.unhealthy destination={destination} error="{quoted}"') == 1
    return error


@pytest.mark.nightly("what begins and ends the alarm, in tests/node/test_lasting.py")
def test_a_dead_database_is_an_alarm_until_it_is_back() -> None:
    """Without a detecting statement it was none, in the status or in the metrics. A list of problems names it once."""
    with MariaDB() as server, Node({"example": follow(server)}) as node:
        until(lambda: destination_of(node, "example")["source_error"] == "", what="a first answer")
        server.kill()
        (alarm,) = until(lambda: node.status()["alarms"] or None, seconds=60, what="the alarm")
        assert (alarm["alarm"], alarm["destination"]) == ("source", "example")
        assert f":{server.port}" in alarm["text"]
        assert (
            'canal_node_alarm{destination="example",alarm="source"} 1'
            in urlopen(f"http://127.0.0.1:{node.metrics_port}/metrics").read().decode()
        )
        told = problems(node.status())
        assert [text for text in told if f":{server.port}" in text] == told
        assert len(told) == 1
        server.start()
        until(lambda: node.status()["alarms"] == [], seconds=60, what="the end of the alarm")


def statement(error: str, beginning: str) -> str:
    """Return the statement in a message that starts with `beginning`."""
    found = re.search(rf"{beginning}[^;(…]*", error)
    assert found, error
    return found[0].strip()


def test_accounts(source_server: SqlServer, database: str) -> None:
    """A missing account or privilege is reported with the statement to run; rows then flow without a restart.

    SUBSCRIBE fails with the same kind of message. If the password changes under a stream, the status shows the error,
    the client sees none, and the stream continues when the password is right again.
    """
    someone = f"u_{database}"
    source_server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    settings = {"canal.instance.dbUsername": someone, "canal.instance.dbPassword": "geheim"}
    with Node({"example": follow(source_server, settings), "well": follow(source_server)}) as node:
        error = complaint(node, "example", "(1045)")
        assert "check canal.instance.dbUsername and canal.instance.dbPassword" in error
        create = statement(error, "CREATE USER")
        source_server.execute(create.replace("<dbPassword>", "geheim"))
        with pytest.raises(ServerRefused, match="GRANT SELECT") as refused, following(node):
            pass
        source_server.execute(statement(str(refused.value), "GRANT"))
        with following(node, tables=rf"{database}\.t") as client:
            source_server.execute(f"INSERT INTO {database}.t VALUES (1)")
            assert column(read(client, 1)) == [1]
            source_server.execute(f"ALTER USER '{someone}'@'%' IDENTIFIED BY 'changed'")
            dumps = source_server.query("SHOW PROCESSLIST")
            for row in dumps:
                if row["User"] == someone:
                    source_server.execute(f"KILL {row['Id']}")
            until(lambda: "(1045)" in stream_of(node, "example")["error"], what="the stream's error")
            source_server.execute(f"INSERT INTO {database}.t VALUES (2)")
            silence(client, 0.3)  # tried again and again; a client sees no error
            assert "stream.failing destination=example client_id=1001" in node.log_file("example")
            source_server.execute(f"ALTER USER '{someone}'@'%' IDENTIFIED BY 'geheim'")
            assert column(read(client, 1)) == [2]
            assert stream_of(node, "example")["error"] == ""
            assert "stream.connected destination=example client_id=1001" in node.log_file("example")
        assert not destination_of(node, "well")["source_error"]
        until(lambda: node.log_file("example").count("source.healthy") == 1, what="the line that ends the alarm")


@pytest.mark.parametrize("flavor", SOURCES)
def test_binlog_settings_restarts_and_purged_journals(flavor: str) -> None:
    """A client loses and repeats no row while one server has every fault that its binlog can have.

    The faults are: binary log off, wrong format, restart, crash, purged journal. A client parked at the purged journal
    fails; other clients continue.
    """
    server = SOURCES[flavor](extra=["--skip-log-bin", "--binlog-format=MIXED"], gtid=False)
    with (
        server,
        Node({"example": follow(server, {"canal.instance.stream.idle": "2"}), "other": follow(server)}) as node,
    ):
        assert "log-bin=mysql-bin, binlog_format=ROW" in complaint(node, "example", "the binary log is off")
        server.extra = ("--binlog-format=MIXED",)
        server.restart()
        with pytest.raises(ServerRefused, match="Unsupported BinlogFormat MIXED") as refused, following(node):
            pass
        server.execute(statement(str(refused.value), "SET GLOBAL"))
        server.extra = ()
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY)")
        with (
            following(node, "example", 1001, r"d\.t") as client,
            following(node, "example", 1002, r"d\.t") as late,
            following(node, "other", 1001, r"d\.t") as other,
        ):
            server.execute("INSERT INTO d.t VALUES (1), (2)")
            assert [column(read(each, 2))[-2:] for each in (client, late, other)] == [[1, 2]] * 3
            server.restart()
            server.execute("INSERT INTO d.t VALUES (3)")
            assert column(read(client, 1)) == column(read(other, 1)) == [3]
            server.kill()
            until(lambda: stream_of(node, "example")["error"], what="the stream's error")
            server.start()
            server.execute("INSERT INTO d.t VALUES (4)")
            assert column(read(client, 1)) == column(read(other, 1)) == [4]
            # 1002 is parked: its cursor stays in the journal that is purged next
            until(lambda: stream_of(node, "example", 1002)["state"] == "parked", what="parking")
            wanted = stream_of(node, "example", 1002)["cursor"]["journal"]
            server.execute("FLUSH LOGS", "INSERT INTO d.t VALUES (5)")
            assert column(read(client, 1)) == column(read(other, 1)) == [5]
            newest, _ = server.position()

            def purged() -> bool:
                server.execute(f"PURGE BINARY LOGS TO '{newest}'")  # waits for dumps that still read an old one
                return server.journals() == [newest]

            until(purged, what="the purge")
            with pytest.raises(ServerRefused, match=f"{wanted} .*is purged; the oldest journal is {newest}"):
                silence(late, 20)
            server.execute("INSERT INTO d.t VALUES (6)")
            assert column(read(client, 1)) == column(read(other, 1)) == [6]
            stopped = stream_of(node, "example", 1002)
            assert stopped["state"] == "failed"
            assert f"journal {wanted} (wanted: {wanted}:" in stopped["error"]
            assert stopped["error"] in node.log_file("example")
            assert not stream_of(node, "example")["error"]
