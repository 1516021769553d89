"""Whether a standby has what was read from the other server, asked of real pairs of servers that change roles."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from canal_ha.errors import StandbyBehind
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import examine
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.positions import gtids
from canal_ha.source.positions.scan import Scanner
from canal_ha.source.server.standing import check_standing
from lab import SqlServer
from lab.chaos.schedule import Setting
from lab.chaos.source import Source
from lab.mysql import CANAL
from lab.proxy import Network
from lab.replica import Replica
from lab.waiting import until
from tests.source.reading import config_of

pytestmark = pytest.mark.real


@pytest.fixture(params=["mariadb", "mysql"])
def pair(request: pytest.FixtureRequest) -> Iterator[Source]:
    """A server and its standby, with a table in both."""
    with ExitStack() as stack:
        source = Source(Setting(request.param, request.param == "mysql", "FULL"), stack.enter_context(Network(1)))
        source.start(stack)
        if request.param == "mariadb":
            source.primary.execute(f"GRANT REPLICA MONITOR ON *.* TO {CANAL}")
        source.primary.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY)")
        source.caught_up()
        yield source


def written(server: SqlServer) -> None:
    """Write a row, in another second of the clock than what was written before."""
    time.sleep(1.1)
    server.execute("INSERT INTO shop.t VALUES ()")


def read_to(server: SqlServer) -> LogPosition:
    """Return the end of a server's binlog, as a stream knows it that has just read the last row."""
    config = config_of(server)
    with closing(SourceSession(config, config.master)) as session:
        at = LogPosition.on(examine(session).read_at(config.master), *server.position(), int(time.time()) * 1000)
    executed = "@@GLOBAL.gtid_current_pos" if server.flavor == "mariadb" else "@@GLOBAL.gtid_executed"
    return replace(at, gtid=str(server.query(f"SELECT {executed} AS gtid")[0]["gtid"]))


def stands(server: SqlServer, read: LogPosition) -> bool:
    """Return whether a server passes for one that has what was read of the other one, by GTIDs and by positions."""
    return _passes(server, read, gtid=True) and _passes(server, read, gtid=False)


def lags(server: SqlServer, read: LogPosition) -> bool:
    """Return whether a server passes neither by GTIDs nor by positions."""
    return not _passes(server, read, gtid=True) and not _passes(server, read, gtid=False)


def _passes(server: SqlServer, read: LogPosition, *, gtid: bool) -> bool:
    config = config_of(server)
    config = replace(config, decode=replace(config.decode, gtid_on=gtid))
    try:
        return not check_standing(config, None, [read], lambda connection: None)
    except StandbyBehind:
        return False


def test_an_old_master_that_lags_as_a_standby_has_not_taken_over(pair: Source) -> None:
    """Its newest transaction is its own, from the time before the roles changed. It passes once it writes again."""
    written(pair.primary)
    pair.rejoin(pair.promote())
    replica = Replica(pair.standby)
    until(lambda: replica.receives() == "Yes", seconds=60, what="replication")
    replica.stop("SQL_THREAD")
    written(pair.primary)
    read = read_to(pair.primary)
    assert lags(pair.standby, read)
    replica.stop()
    pair.standby.execute("SET GLOBAL read_only = OFF")
    written(pair.standby)
    assert stands(pair.standby, read)


def test_a_standby_whose_replication_stands_still_has_not_taken_over(pair: Source) -> None:
    """Its binlog has more than a megabyte of the other server's transactions, and none of its own."""
    with pair.primary.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE shop.wide (pad VARCHAR(2000))")
        for _ in range(800):
            cursor.execute("INSERT INTO shop.wide VALUES (REPEAT('x', 1900))")
            connection.commit()
    pair.caught_up()
    replica = Replica(pair.standby)
    replica.stop("SQL_THREAD")
    written(pair.primary)
    read = read_to(pair.primary)
    assert all(lags(pair.standby, read) for _ in range(20))
    replica.start("SQL_THREAD")
    pair.caught_up()
    assert stands(pair.standby, read)


STATEMENTS = (
    "ANALYZE TABLE shop.t",
    "FLUSH TABLES",
    "FLUSH PRIVILEGES",
    "CREATE USER IF NOT EXISTS somebody@localhost",
    "OPTIMIZE TABLE shop.t",
    "CREATE TABLE shop.own (id INT PRIMARY KEY)",
)


def lagging(pair: Source) -> LogPosition:
    """Stop the standby's replication, in the other server's last transaction; return what was read of that."""
    Replica(pair.standby).stop()
    written(pair.primary)
    read = read_to(pair.primary)
    time.sleep(1.1)  # seconds tell what is newer
    return read


@pytest.mark.parametrize("read_only", [True, False], ids=["read_only", "writable"])
def test_statements_on_a_standby_that_lags_are_no_sign_of_a_new_master(pair: Source, read_only: bool) -> None:
    """They enter its binlog as its own newest transactions, even while it is read only."""
    read = lagging(pair)
    assert lags(pair.standby, read)
    if read_only:
        pair.standby.execute("SET GLOBAL read_only = ON")
    for statement in STATEMENTS:
        pair.standby.execute(statement)
        assert lags(pair.standby, read), statement
    pair.standby.execute("SET GLOBAL read_only = OFF")
    written(pair.standby)
    assert stands(pair.standby, read)


def test_rows_of_its_own_on_a_standby_that_lags_are_no_sign_while_it_is_read_only(pair: Source) -> None:
    """An administrator can write there. Replication that an error has stopped is not over either."""
    read = lagging(pair)
    pair.standby.execute("SET GLOBAL read_only = ON")
    written(pair.standby)
    assert lags(pair.standby, read)
    pair.standby.execute("SET GLOBAL read_only = OFF")
    Replica(pair.standby).start("IO_THREAD")
    until(lambda: Replica(pair.standby).receives() == "Yes", seconds=60, what="replication")
    assert lags(pair.standby, read)


def test_statements_on_a_standby_of_mariadb_are_no_sign_to_an_account_without_rights() -> None:
    """The account cannot see the replication, and compares times. The times of such statements tell nothing."""
    with ExitStack() as stack:
        pair = Source(Setting("mariadb", False, "FULL"), stack.enter_context(Network(1)))
        pair.start(stack)
        pair.primary.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY)")
        pair.caught_up()
        read = lagging(pair)
        # else the statements' GTIDs would end replication
        pair.standby.execute("SET GLOBAL gtid_strict_mode = OFF", "SET GLOBAL read_only = ON", *STATEMENTS)
        config = config_of(pair.standby)
        with pytest.raises(StandbyBehind):
            check_standing(config, None, [read], lambda connection: None)
        Replica(pair.standby).start()
        pair.caught_up()
        assert "REPLICA MONITOR" in check_standing(config, None, [read], lambda connection: None)


def test_a_transaction_of_its_own_does_not_stand_for_one_that_it_lacks(pair: Source) -> None:
    """MariaDB numbers both alike."""
    read = lagging(pair)
    written(pair.standby)
    config = config_of(pair.standby)
    with closing(SourceSession(config, config.master)) as session:
        scanner = Scanner(session, examine(session), config, config.master)
        assert gtids.lags(scanner, str(read.gtid))
        assert not gtids.lags(scanner, str(read_to(pair.standby).gtid))


def test_with_gtids_a_new_master_is_known_whatever_the_clocks_say(pair: Source) -> None:
    """It lacks one transaction, and writes in the same second; or the clock of the old master was fast."""
    Replica(pair.standby).stop()
    pair.primary.execute("INSERT INTO shop.t VALUES ()")
    read = replace(read_to(pair.primary), timestamp_ms=int(time.time() + 600) * 1000)
    assert not _passes(pair.standby, read, gtid=True)
    pair.standby.execute("INSERT INTO shop.t VALUES ()")
    assert _passes(pair.standby, read, gtid=True)
    with pytest.raises(StandbyBehind, match="clocks"):
        check_standing(config_of(pair.standby), None, [read], lambda connection: None)


def test_a_look_at_a_standby_reads_its_journal_once(pair: Source) -> None:
    """The first look reads what a binlog of 20 MB has. The next ones read what has come since."""
    pair.primary.execute("CREATE TABLE shop.wide (pad LONGTEXT)")
    for _ in range(20):
        pair.primary.execute("INSERT INTO shop.wide VALUES (REPEAT('x', 1000000))")
    pair.caught_up()
    read = lagging(pair)

    def sent() -> int:
        return int(pair.standby.query("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")[0]["Value"])

    assert lags(pair.standby, read)
    before = sent()
    for _ in range(5):
        assert lags(pair.standby, read)
    assert sent() - before < 1_000_000
    written(pair.standby)
    assert stands(pair.standby, read)
