"""What a client gets when the source changes: after a crash, by command, or behind the same address."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time

import pytest

from canal_ha.config.model import DecodeOptions, SourceConfig
from canal_ha.instance.feed import FeedRequest, Move
from canal_ha.model.segment import Segment
from canal_ha.node.upstreams import Upstreams
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab import MariaDB, MySQL, Node, SqlServer
from lab.node import PROGRAM
from lab.ports import LOOPBACK
from lab.proxy import Network
from lab.replica import Replica
from tests.positions.pair import NOTHING, SWITCHING, Compared, Getting, Writer, paired
from tests.sampling import LONG
from tests.source.reading import config_of, newest
from tests.source.test_destination_history_real import silent
from tests.waiting import until

SKEW_S = 90
OTHERS = [(MySQL, False, SKEW_S), (MySQL, False, -SKEW_S), (MariaDB, True, -SKEW_S), (MySQL, True, -SKEW_S)]


@pytest.mark.real
@pytest.mark.parametrize("_round", range(10 if LONG else 1))
@pytest.mark.parametrize(
    ("make", "gtid", "skew_s"),
    [(MariaDB, False, -SKEW_S), (MySQL, True, SKEW_S), *(OTHERS if LONG else ())],
)
def test_master_killed_under_writes(make: type[SqlServer], gtid: bool, skew_s: int, _round: int) -> None:
    """The node moves to the standby by itself. Its rows arrive once and in order, whatever its clock says."""
    with paired(make, gtid=gtid) as pair, pair.node(SWITCHING).start() as node:
        with Getting(node) as got:
            with Writer(pair.master, 1) as before:
                got.upto(200)
                pair.master.kill()
            pair.promote()
            replicated = pair.ids()
            after = Writer(pair.standby, len(before.written) + 100, skew_s)
            after.write(50)
            got.upto(after.written[-1])
        assert Compared.of(got.ids, [*replicated, *after.written]) == NOTHING, node.log_file("example")
        node.restart()
        with Getting(node) as again:
            after.write(10)
            again.upto(after.written[-1])
        assert again.ids == after.written[-10:], node.log_file("example")


@pytest.mark.real
@pytest.mark.parametrize(
    ("make", "gtid"), [(MariaDB, True), *([(MariaDB, False), (MySQL, False), (MySQL, True)] if LONG else ())]
)
def test_rows_that_never_reached_the_standby(make: type[SqlServer], gtid: bool) -> None:
    """Rows that only the master had stay delivered, and all later rows arrive once.

    MariaDB refuses the GTID set in this case, and the node finds its place by content.
    """
    with paired(make, gtid=gtid) as pair, pair.node(SWITCHING).start() as node:
        with Getting(node) as got:
            writer = Writer(pair.master, 1)
            writer.write(20)
            got.upto(20)
            pair.caught_up()
            pair.cut_off()
            writer.write(3)
            got.upto(23)
            pair.master.kill()
            after = Writer(pair.standby, 100)
            after.write(20)
            got.upto(119)
        assert Compared.of(got.ids, [*writer.written, *after.written]) == NOTHING, node.log_file("example")


@pytest.mark.real
@pytest.mark.parametrize(
    ("make", "gtid"), [(MariaDB, False), (MySQL, True), *([(MySQL, False), (MariaDB, True)] if LONG else ())]
)
def test_a_standby_whose_replication_has_stopped_is_not_taken_until_it_catches_up(
    make: type[SqlServer], gtid: bool
) -> None:
    """The node says so and stays. When the standby has applied what it had received, the node switches, once.

    The account may not see MariaDB's replication, so the node compares the seconds of the newest commits there.
    """
    with paired(make, gtid=gtid) as pair, pair.node(SWITCHING).start() as node:
        with Getting(node) as got:
            pair.lag()
            created = int(time.time())
            until(lambda: int(time.time()) > created, what="the next second")
            writer = Writer(pair.master, 1)
            writer.write(20)
            got.upto(20)
            until(lambda: pair.received(), what="the standby to receive all")
            pair.master.kill()
            until(lambda: "source.standby_behind" in node.log_file("example"), what="the word")
            time.sleep(4)
            assert "source.switched" not in node.log_file("example")
            pair.lag(over=True)
            until(lambda: "source.switched" in node.log_file("example"), what="the switch")
            pair.promote()
            Writer(pair.standby, 100).write(20)
            got.upto(119)
        assert Compared.of(got.ids, pair.ids()) == NOTHING, node.log_file("example")
        assert node.log_file("example").count("source.standby_behind") == 1


@pytest.mark.real
def test_a_standby_that_lacks_only_transactions_of_its_last_second_gives_them_once() -> None:
    """The account may not see MariaDB's replication. Seconds do not show the lag, so the node switches."""
    with paired(MariaDB, gtid=False) as pair, pair.node(SWITCHING).start() as node:
        with Getting(node) as got:
            with pair.master.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"SET timestamp = {int(time.time())}")
                cursor.execute("INSERT INTO shop.t VALUES (1, 'there')")
                pair.caught_up()
                pair.lag()
                for number in range(2, 21):
                    cursor.execute(f"INSERT INTO shop.t VALUES ({number}, 'not there')")
            got.upto(20)
            until(lambda: pair.received(), what="the standby to receive all")
            pair.master.kill()
            until(lambda: "source.switched" in node.log_file("example"), what="the switch")
            pair.lag(over=True)
            pair.promote()
            Writer(pair.standby, 100).write(20)
            got.upto(119)
        assert Compared.of(got.ids, pair.ids()) == NOTHING, node.log_file("example")


@pytest.mark.real
def test_a_switch_behind_transactions_with_tags_loses_and_repeats_nothing() -> None:
    """MySQL's GTIDs may have tags. The standby lags, has transactions of its own, and is left again."""
    with paired(MySQL, gtid=True) as pair, pair.node().start() as node, Getting(node) as got:
        tagged(pair.master, range(1, 6), "one")
        got.upto(5)
        pair.caught_up()
        pair.lag()
        tagged(pair.standby, range(100, 103), "own")
        tagged(pair.master, range(6, 9), "two")
        Writer(pair.master, 9).write(2)
        got.upto(10)
        pair.lag(over=True)
        until(lambda: 10 in pair.ids(), what="the standby to catch up")
        pair.replica.forget()
        switched(node, "standby")
        got.upto(102)
        tagged(pair.standby, range(103, 105), "two")
        Writer(pair.standby, 105).write(1)
        got.upto(105)
        switched(node, "master")
        tagged(pair.master, range(200, 203), "one")
        got.upto(202)
    wanted = [*range(1, 11), *range(100, 106), *range(200, 203)]
    assert Compared.of(got.ids, wanted) == NOTHING, node.log_file("example")


def tagged(server: SqlServer, ids: range, tag: str) -> None:
    """Insert rows, each in a transaction whose GTID has this tag."""
    server.execute(f"SET SESSION gtid_next = 'AUTOMATIC:{tag}'", *(f"INSERT INTO shop.t VALUES ({n}, '')" for n in ids))


@pytest.mark.real
@pytest.mark.parametrize("make", [MySQL, MariaDB])
def test_transactions_that_commit_a_second_after_their_rows_do_not_come_again(make: type[SqlServer]) -> None:
    """A replica of MySQL gives their commits other times than the master did. They are recognized all the same."""
    with paired(make, gtid=False) as pair, pair.node(SWITCHING).start() as node:
        with Getting(node) as got:
            with pair.master.connect(autocommit=False) as connection, connection.cursor() as cursor:
                for number in range(1, 6):
                    cursor.execute(f"INSERT INTO shop.t VALUES ({number}, 'late')")
                    time.sleep(1.1)
                    connection.commit()
            got.upto(5)
            pair.caught_up()
            pair.master.kill()
            pair.promote()
            Writer(pair.standby, 100).write(20)
            got.upto(119)
        assert Compared.of(got.ids, pair.ids()) == NOTHING, node.log_file("example")


@pytest.mark.real
def test_master_hangs() -> None:
    """The node leaves a server that accepts connections and does not answer, as it leaves a dead one."""
    with paired(MariaDB, gtid=False) as pair, pair.node(SWITCHING).start() as node:
        with Getting(node) as got:
            Writer(pair.master, 1).write(20)
            got.upto(20)
            pair.caught_up()
            pair.master.pause()
            pair.standby.execute("STOP SLAVE IO_THREAD")
            pair.promote()
            after = Writer(pair.standby, 100)
            after.write(20)
            got.upto(119)
        pair.master.resume()
        assert Compared.of(got.ids, pair.ids()) == NOTHING, node.log_file("example")
        assert "timed out" in node.log_file("example")


@pytest.mark.real
@pytest.mark.parametrize(
    ("make", "gtid"), [(MariaDB, False), *([(MariaDB, True), (MySQL, False), (MySQL, True)] if LONG else ())]
)
def test_by_hand_there_and_back_under_writes(make: type[SqlServer], gtid: bool) -> None:
    """`canal-ha source switch` to a standby that lags and catches up, and back: clients continue where they were."""
    with paired(make, gtid=gtid, metadata="MINIMAL") as pair, pair.node().start() as node:
        with Getting(node) as got:
            with Writer(pair.master, 1) as writer:
                got.upto(50)
                pair.lag()
                got.upto(len(writer.written) + 50)
                assert switched(node, "standby") == f"example: reads from {pair.standby.address}"
                until(lambda: "stream.moved" in node.log_file("example"), what="the move")
                pair.lag(over=True)
                got.upto(len(writer.written) + 50)
                assert f"{pair.standby.address} (standby)" in shown(node)
                assert "already" in switched(node, "standby")
                assert switched(node, "other") == f"example: reads from {pair.master.address}"
                pair.standby.kill()
                assert "Can't connect" in switched(node, "standby")
                assert "does not run on this node" in switched(node, "master", destination="elsewhere")
            got.upto(writer.written[-1])
        assert Compared.of(got.ids, writer.written) == NOTHING, node.log_file("example")


@pytest.mark.real
def test_another_server_under_the_address() -> None:
    """When an address moves to another server, old offsets are not read there, whether or not the node saw the move."""
    with Network() as network, paired(MySQL, gtid=False) as pair:
        link = network.link(pair.master.port)
        with pair.node(master=link.address, standby=False).start() as node:
            with Getting(node) as got:
                with Writer(pair.master, 1) as before:
                    got.upto(100)
                pair.caught_up()
                pair.promote()
                after = Writer(pair.standby, len(before.written) + 100, SKEW_S)
                after.write(20)
                link.target = pair.standby.port
                link.reset()
                got.upto(after.written[-1])
            assert Compared.of(got.ids, pair.ids()) == NOTHING, node.log_file("example")
            node.stop()
            pair.master.execute("INSERT INTO shop.t VALUES (9000, 'only here')", "FLUSH BINARY LOGS")
            link.target = pair.master.port
            link.reset()
            node.start()
            with Getting(node) as again:
                again.upto(9000)
            # the old master has neither the rows delivered last nor others of their origin: the window comes again
            assert Compared.of(again.ids, [*before.written, 9000]) == NOTHING, node.log_file("example")
            assert "how=time" in node.log_file("example")


@pytest.mark.real
def test_the_master_dies_while_no_node_runs() -> None:
    """The cursor alone gives the place on the standby.

    Without its fingerprints the window is repeated; the log says how much.
    """
    with paired(MySQL, gtid=False) as pair, pair.node(SWITCHING) as node:
        with Getting(node) as got:
            writer = Writer(pair.master, 1)
            writer.write(30)
            got.upto(30)
        node.stop()
        writer.write(20)
        pair.caught_up()
        pair.master.kill()
        pair.promote()
        node.start()
        with Getting(node) as rest:
            rest.upto(50)
        assert Compared.of(got.ids + rest.ids, pair.ids()) == NOTHING, node.log_file("example")
        node.stop()
        without_trail(node, pair.master)
        Writer(pair.standby, 51).write(5)
        node.start()
        with Getting(node) as again:
            again.upto(55)
        assert again.ids == [*range(1, 56)], node.log_file("example")
        again_at_most = re.search(r"how=time .*may_come_again=(\d+)", node.log_file("example"))
        assert again_at_most, node.log_file("example")
        assert 50 <= int(again_at_most[1]) <= 52  # 52 with CREATE DATABASE and CREATE TABLE


@pytest.mark.real
@pytest.mark.nightly("tests/source/test_matching.py has switches there and back, without servers")
@pytest.mark.parametrize("make", [MySQL, *([MariaDB] if LONG else ())])
def test_what_the_other_server_wrote_between_two_switches_does_not_come_again(make: type[SqlServer]) -> None:
    """Both servers take turns within the window. The cursor's last transactions are those of the last turn alone."""
    with paired(make, gtid=False) as pair, pair.node().start() as node:
        writes = Writer(pair.master, 1)

        def turn(writer: SqlServer, other: SqlServer, to: str) -> None:
            """Promote a server, make the other one its replica, and write for some seconds. to: its role."""
            Replica(writer).forget()
            Replica(other).follow(writer.port, writer.position())
            assert "reads from" in switched(node, to)
            writes.server = writer
            for _ in range(5):
                writes.write(8)
                time.sleep(1)
            until(lambda: Replica(other).position() == writer.position(), what="the other server to catch up")

        with Getting(node) as got:
            writes.write(20)
            pair.caught_up()
            turn(pair.standby, pair.master, "standby")
            turn(pair.master, pair.standby, "master")
            got.upto(writes.written[-1])
        node.restart()
        with Getting(node) as rest:
            turn(pair.standby, pair.master, "standby")
            rest.upto(writes.written[-1])
        assert Compared.of(got.ids + rest.ids, writes.written) == NOTHING, node.log_file("example")


@pytest.mark.real
@pytest.mark.nightly("tests/source/test_fingerprints.py and test_matching.py have such a replica, without servers")
def test_a_row_that_a_parallel_standby_held_back_is_not_lost() -> None:
    """The standby commits row 6 behind all others. The cursor has only those when the node goes back to the master."""
    with paired(MySQL, gtid=False) as pair, pair.node().start() as node:
        pair.replica.stop()
        pair.standby.execute(
            "SET GLOBAL replica_preserve_commit_order = OFF", "SET GLOBAL replica_parallel_workers = 2"
        )
        pair.replica.start()
        writes = Writer(pair.master, 1)
        with pair.standby.connect(autocommit=False) as holding:
            with Getting(node) as got:
                assert "reads from" in switched(node, "standby")
                writes.write(5)
                got.upto(5)
                holding.cursor().execute("INSERT INTO shop.t VALUES (6, 'held')")
                writes.write(40)
                got.upto(45)
            assert 6 not in got.ids
            node.restart()
            with Getting(node) as rest:
                assert "reads from" in switched(node, "master")
                writes.write(1)
                rest.upto(46)
        assert Compared.of(got.ids + rest.ids, writes.written).lost == [], node.log_file("example")


@pytest.mark.real
@pytest.mark.parametrize("make", [MariaDB, *([MySQL] if LONG else ())])
def test_nothing_comes_again_after_a_visit_to_a_server_that_had_nothing(make: type[SqlServer]) -> None:
    """Replication stands still, so the other server delivers nothing. Its rows are the newest ones of its own turn."""
    with paired(make, gtid=False) as pair, pair.node().start() as node:
        writes = Writer(pair.master, 1)
        with Getting(node) as got:
            writes.write(30)
            pair.caught_up()
            Replica(pair.standby).forget()
            Replica(pair.master).follow(pair.standby.port, pair.standby.position())
            assert "reads from" in switched(node, "standby")
            Replica(pair.master).stop("SQL_THREAD")
            writes.server = pair.standby
            writes.write(40)
            got.upto(writes.written[-1])
            assert "reads from" in switched(node, "master")
            until(lambda: node.log_file("example").count("stream.moved") == 2, what="the stream to arrive")
            assert "reads from" in switched(node, "standby")
            writes.write(5)
            got.upto(writes.written[-1])
        assert Compared.of(got.ids, writes.written) == NOTHING, node.log_file("example")
        assert "nothing delivered" in node.log_file("example")


@pytest.mark.real
@pytest.mark.parametrize("make", [MySQL, MariaDB])
def test_no_old_row_comes_again_behind_a_statement_of_the_standby_alone(make: type[SqlServer]) -> None:
    """The statement has a GTID and brings no entry. The standby has run it between rows that it replicated."""
    with paired(make, gtid=True) as pair, pair.node().start() as node:
        writes = Writer(pair.master, 1)
        with Getting(node) as got:
            writes.write(10)
            pair.caught_up()
            domain = ["SET SESSION gtid_domain_id = 1"] if make is MariaDB else []
            pair.standby.execute(*domain, "FLUSH PRIVILEGES")
            writes.write(10)
            got.upto(writes.written[-1])
            pair.caught_up()
            pair.replica.forget()
            assert "reads from" in switched(node, "standby")
            writes.server = pair.standby
            writes.write(10)
            got.upto(writes.written[-1])
        assert Compared.of(got.ids, writes.written) == NOTHING, node.log_file("example")


@pytest.mark.real
@pytest.mark.parametrize("stopped", [True, False])
def test_what_a_standby_writes_late_does_not_come_again_after_a_restart(stopped: bool) -> None:
    """The cursor is in the standby's binlog when the node starts again, before what the standby has not written yet.

    If that came, and the stream went back to the master in the middle of it, the newer rows would not come again.

    stopped: whether the standby writes it before the node starts.
    """
    with paired(MySQL, gtid=True) as pair, pair.node().start() as node:
        writes, own = Writer(pair.master, 1), Writer(pair.standby, 100)
        with Getting(node) as got:
            writes.write(5)
            got.upto(5)
            pair.caught_up()
            pair.lag()
            writes.write(5)
            got.upto(10)
            until(pair.received, what="the standby to receive all")
            assert "reads from" in switched(node, "standby")
            own.write(1)
            got.upto(100)

        def catch_up() -> None:
            pair.lag(over=True)
            until(lambda: 10 in pair.ids(), what="the standby to catch up")

        node.stop()
        if stopped:
            catch_up()
        node.start()
        with Getting(node) as rest:
            if not stopped:
                catch_up()
            own.write(1)
            rest.upto(101)
        assert Compared.of(got.ids + rest.ids, [*writes.written, *own.written]) == NOTHING, node.log_file("example")


@pytest.mark.real
def test_no_row_is_lost_when_the_new_server_turns_its_gtids_off() -> None:
    """Anonymous transactions leave the set as it is. They are new all the same."""
    with paired(MySQL, gtid=True) as pair, pair.node().start() as node, Getting(node) as got:
        writes = Writer(pair.master, 1)
        writes.write(5)
        got.upto(5)
        pair.caught_up()
        pair.replica.forget()
        assert "reads from" in switched(node, "standby")
        writes.server = pair.standby
        for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE"):
            pair.standby.execute(f"SET GLOBAL gtid_mode = {mode}")
        writes.write(10)
        got.upto(writes.written[-1])
    assert Compared.of(got.ids, writes.written) == NOTHING, node.log_file("example")


@pytest.mark.real
@pytest.mark.parametrize(("make", "gtid"), [(MariaDB, True), (MySQL, False)])
def test_nothing_comes_twice_if_a_slow_client_held_the_stream_before_the_visit(
    make: type[SqlServer], gtid: bool
) -> None:
    """The stream leaves while the last of many transactions waits for room, and the other server delivers nothing."""
    ids: list[int] = []
    moves: list[Move] = []
    waits = {6: threading.Event(), 150: threading.Event()}
    goes_on = {number: threading.Event() for number in waits}

    def accept(segment: Segment) -> None:
        changes = [pb.RowChange.FromString(entry.storeValue) for entry in map(pb.Entry.FromString, segment.entries())]
        found = [int(row.afterColumns[0].value) for change in changes for row in change.rowDatas]
        for number in waits:
            if number in found:
                waits[number].set()
                goes_on[number].wait(60)
        ids.extend(found)

    with paired(make, gtid=gtid) as pair:
        standby = SourceConfig(LOOPBACK, pair.standby.port)
        config = config_of(pair.master, decode=DecodeOptions(gtid_on=gtid), standby=standby, fallback_interval_s=6)
        origin = Upstreams(config, silent)
        request = FeedRequest(
            client_id=1001,
            read="",
            filter=r"shop\.t",
            start=newest(pair.master),
            accept=accept,
            connected=lambda version: None,
            failed=lambda error, retry_in_s: None,
            moved=moves.append,
        )
        feed = origin.open_feed(request)
        feed.start()
        try:
            writes = Writer(pair.master, 1)
            writes.write(6)
            assert waits[6].wait(60)
            writes.write(144)
            pair.caught_up()
            goes_on[6].set()
            assert waits[150].wait(60)
            origin.switch("standby", "a test")
            goes_on[150].set()
            until(lambda: len(moves) == 1, what="the stream to arrive")
            origin.switch("master", "a test")
            until(lambda: len(moves) == 2, what="the stream to come back")
            writes.write(1)
            until(lambda: 151 in ids, what="the next row")
        finally:
            for event in goes_on.values():
                event.set()
            feed.stop()
            origin.close()
    assert moves[1].facts["how"] == "nothing delivered"
    assert Compared.of(ids, writes.written) == NOTHING


def switched(node: Node, to: str, destination: str = "example", *options: str) -> str:
    """Run `canal-ha source switch`, and return its output."""
    command = [PROGRAM, "source", "switch", "--destination", destination, "--to", to, "--conf", str(node.conf)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=90, check=False)
    return (done.stdout + done.stderr).strip()


def shown(node: Node) -> str:
    """Return the output of `canal-ha status`."""
    command = [PROGRAM, "status", "--url", f"{LOOPBACK}:{node.admin_port}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout


def without_trail(node: Node, server: SqlServer) -> None:
    """Rewrite the cursor on disk as canal writes it for this server: without fingerprints."""
    path = node.conf / "example" / "meta.dat"
    meta = json.loads(path.read_text())
    cursor = meta["clientDatas"][0]["cursor"]
    del cursor["postion"]["source"]
    cursor["identity"]["sourceAddress"]["port"] = server.port
    path.write_text(json.dumps(meta))
