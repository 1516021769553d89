"""A snapshot goes on when the stream goes on with another server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from canal_ha.config.model import DecodeOptions, SnapshotLimits
from lab import MariaDB, MySQL, SqlServer
from lab.mysql import CANAL
from tests.node.snapshots import Copy, SnapshotStream, state
from tests.node.test_snapshot_without_key import Log
from tests.positions.pair import Pair, Writer, paired
from tests.waiting import until

pytestmark = pytest.mark.real

TABLE = "shop.t"
ROWS = 600


@pytest.fixture(params=[MariaDB, MySQL], ids=["mariadb", "mysql"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Yield a master with rows and its standby."""
    with paired(request.param, gtid=request.param is MySQL) as made:
        made.master.execute(
            "INSERT INTO shop.t VALUES " + ", ".join(f"({number}, 'old')" for number in range(1, ROWS + 1))
        )
        made.caught_up()
        yield made


@pytest.mark.parametrize(
    "connections", [4, pytest.param(1, marks=pytest.mark.nightly("the same with four connections"))]
)
def test_a_switch_in_the_middle_loses_no_row(pair: Pair, connections: int) -> None:
    """A chunk that is read during the switch is read again on the other server; the rest is read there."""
    copy = Copy({TABLE: ("id",)})
    stream = SnapshotStream(
        pair.master,
        r"shop\.t",
        state(TABLE),
        copy,
        limits=SnapshotLimits(rows_most=10, rows_per_s=300, connections=connections),
        standby_port=pair.standby.port,
    )
    with stream:
        with Writer(pair.master, ROWS + 1):
            until(lambda: len(stream.chunks()) > 10, what="some chunks")
            pair.lag()  # the standby has less than the snapshot has read
            time.sleep(0.3)
        pair.lag(over=True)
        pair.promote()
        stream.upstreams.switch("standby", "a test")
        pair.standby.execute("INSERT INTO shop.t VALUES (90001, 'new')", "UPDATE shop.t SET word = 'new' WHERE id < 50")
        last = stream.done()
        stream.caught_up(pair.standby)
        moved = [segment.source.port for segment in stream.taken]
    assert moved[-1] == pair.standby.port
    assert last.rows >= ROWS
    assert brought(copy) == standing(pair.standby)


def test_a_standby_that_lags_brings_no_older_rows(pair: Pair) -> None:
    """The snapshot waits until the standby has what the stream has brought, because that does not come again.

    On MariaDB the account cannot see the replication, so the snapshot waits for some seconds.
    """
    copy = Copy({TABLE: ("id",)})
    stream = SnapshotStream(
        pair.master,
        r"shop\.t",
        state(TABLE),
        copy,
        limits=SnapshotLimits(rows_most=10, rows_per_s=300),
        options=DecodeOptions(gtid_on=pair.gtid),
        standby_port=pair.standby.port,
        fallback_interval_s=6,
    )
    with stream:
        until(lambda: len(stream.chunks()) > 2, what="some chunks")
        pair.master.execute("UPDATE shop.t SET word = 'known' WHERE id = 1")
        stream.caught_up(pair.master)
        pair.caught_up()
        pair.lag()
        pair.master.execute("UPDATE shop.t SET word = 'new' WHERE id > 300", "DELETE FROM shop.t WHERE id > 590")
        stream.caught_up(pair.master)
        until(pair.received, what="the standby to receive it")
        stream.upstreams.switch("standby", "a test")
        time.sleep(1.0)
        pair.lag(over=True)
        pair.caught_up()
        pair.standby.execute("INSERT INTO shop.t VALUES (90001, 'newest')")
        stream.done(60)
        stream.caught_up(pair.standby)
    assert brought(copy) == standing(pair.standby)


@pytest.mark.parametrize("what", ["create", "alter"])
def test_a_standby_that_lacks_a_statement_about_the_table_is_waited_for(pair: Pair, what: str) -> None:
    """There was no table, so the snapshot failed and lost its place; or the table still had its old key."""
    create = "CREATE TABLE shop.u (id INT PRIMARY KEY, other INT NOT NULL)"
    rows = "INSERT INTO shop.u VALUES " + ", ".join(f"({number}, {1000 - number})" for number in range(1, 201))
    if isinstance(pair.master, MariaDB):
        pair.master.execute(f"GRANT REPLICA MONITOR ON *.* TO {CANAL}")
    if what == "alter":
        pair.master.execute(create, rows)
    pair.caught_up()
    pair.lag()
    statements = (
        [create, rows] if what == "create" else ["ALTER TABLE shop.u DROP PRIMARY KEY, ADD PRIMARY KEY (other)"]
    )
    pair.master.execute(*statements)
    copy = Copy({"shop.u": ("id",), TABLE: ("id",)})
    stream = SnapshotStream(
        pair.master,
        r"shop\..*",
        state("shop.u"),
        copy,
        limits=SnapshotLimits(rows_most=10, rows_per_s=100),
        options=DecodeOptions(gtid_on=pair.gtid),
        standby_port=pair.standby.port,
    )

    def waits() -> bool:
        """Return whether the snapshot, or its stream and so the snapshot, has waited for the standby more than once."""
        texts = [*stream.tries, *map(str, stream.failures)]
        return sum("it lacks changes" in each or "waiting for it to catch up" in each for each in texts) > 1

    with stream:
        until(lambda: len(stream.chunks()) > 2, what="some chunks")
        pair.master.execute("UPDATE shop.t SET word = 'new' WHERE id = 1")
        stream.caught_up(pair.master)
        until(pair.received, what="the standby to receive it")
        stream.upstreams.switch("standby", "a test")
        until(lambda: bool(stream.ended) or waits(), what="the snapshot to wait")
        pair.lag(over=True)
        last = stream.done(60)
        assert not [error for error in stream.tries if "there is no table" in error]
        if what == "alter" and pair.gtid:  # else the stream may meet the CREATE TABLE once more
            assert "snapshot.begins_again" not in [event for event, _ in stream.told]
            assert last.rows == 200
    assert {int(key[0] or 0) for name, key in copy.rows if name == "shop.u"} == set(range(1, 201))


def brought(copy: Copy) -> dict[int, str | None]:
    """Return the words of the copy's rows by id."""
    return {int(key[0] or 0): row["word"] for (_, key), row in copy.rows.items()}


def standing(server: SqlServer) -> dict[int, str | None]:
    """Return the words of a server's rows by id."""
    return {int(row["id"]): row["word"] for row in server.query("SELECT id, word FROM shop.t")}


def switched_to_a_standby_that_lags(pair: Pair, stream: SnapshotStream) -> None:
    """Let the stream bring changes that the standby only receives, and then read the standby."""
    until(lambda: len(stream.chunks()) > 2, what="some chunks")
    pair.master.execute("UPDATE shop.t SET word = 'known' WHERE id = 1")
    stream.caught_up(pair.master)
    pair.caught_up()
    pair.lag()
    time.sleep(1.1)  # seconds tell what is newer
    pair.master.execute("UPDATE shop.t SET word = 'new' WHERE id > 300")
    stream.caught_up(pair.master)
    until(pair.received, what="the standby to receive it")
    time.sleep(1.1)
    stream.upstreams.switch("standby", "a test")


def test_a_statement_on_a_standby_that_lags_brings_no_older_rows(pair: Pair) -> None:
    """The statement enters the standby's binlog as its own newest transaction. The snapshot waits all the same."""
    if pair.master.flavor == "mariadb":
        pair.master.execute(f"GRANT REPLICA MONITOR ON *.* TO {CANAL}")
        pair.caught_up()
        pair.standby.execute("SET GLOBAL gtid_strict_mode = OFF")  # else the statement ends replication
    copy = Copy({TABLE: ("id",)})
    stream = SnapshotStream(
        pair.master,
        r"shop\.t",
        state(TABLE),
        copy,
        limits=SnapshotLimits(rows_most=10, rows_per_s=100),
        options=DecodeOptions(gtid_on=pair.gtid),
        standby_port=pair.standby.port,
    )
    with stream:
        pair.standby.execute("SET GLOBAL read_only = ON")
        switched_to_a_standby_that_lags(pair, stream)
        pair.standby.execute("ANALYZE TABLE shop.t")
        until(lambda: any("it lacks changes" in text for text in stream.tries[-1:]), what="the snapshot to wait")
        tries = len(stream.tries)
        until(lambda: len(stream.tries) > tries, what="another try")
        assert all(word == "new" for number, word in brought(copy).items() if number > 300)
        pair.lag(over=True)
        pair.caught_up()
        stream.done(60)
        stream.caught_up(pair.standby)
    assert brought(copy) == standing(pair.standby)


@pytest.mark.parametrize("make", [MariaDB, MySQL])
def test_a_restart_on_a_standby_that_lags_brings_its_changes_again(make: type[SqlServer]) -> None:
    """Without GTIDs, a cursor in the standby's binlog does not tell what the other server had, so no snapshot waits.

    Older rows come then. The changes come behind them once more, because they are behind the cursor.
    """
    with paired(make, gtid=False) as pair:
        pair.master.execute("INSERT INTO shop.t VALUES " + ", ".join(f"({number}, 'old')" for number in range(1, ROWS)))
        if make is MariaDB:
            pair.master.execute(f"GRANT REPLICA MONITOR ON *.* TO {CANAL}")
            pair.standby.execute("SET GLOBAL gtid_strict_mode = OFF")
        pair.caught_up()
        copy = Copy({TABLE: ("id",)})
        limits = SnapshotLimits(rows_most=10, rows_per_s=100)
        stream = SnapshotStream(
            pair.master, r"shop\.t", state(TABLE), copy, limits=limits, standby_port=pair.standby.port
        )
        with stream:
            switched_to_a_standby_that_lags(pair, stream)
            pair.standby.execute("INSERT INTO shop.t VALUES (90001, 'own')")
            until(lambda: 90001 in brought(copy), what="the row of the standby")
            last = stream.taken[-1]
            at, progress = last.position(len(last) - 1, consumed=True), stream.states()[-1]
        assert last.source.port == pair.standby.port
        with SnapshotStream(pair.standby, r"shop\.t", progress, copy, limits=limits, start=at) as again:
            again.done()
            pair.lag(over=True)
            pair.caught_up()
            again.caught_up(pair.standby)
        assert brought(copy) == standing(pair.standby)


def test_a_table_without_a_key_is_whole_behind_a_switch(pair: Pair) -> None:
    """Whether the read ends on the old server or begins again on the new one, every row is there as often as it is."""
    table = "shop.log"
    pair.master.execute(
        "CREATE TABLE shop.log (id INT, word VARCHAR(20))",
        "INSERT INTO shop.log VALUES " + ", ".join(f"({number // 2}, 'old')" for number in range(ROWS)),
    )
    pair.caught_up()
    log = Log(table)
    stream = SnapshotStream(
        pair.master,
        r"shop\.log",
        replace(state(table), without_key=True),
        log,  # type: ignore[arg-type]  # a copy
        limits=SnapshotLimits(rows_most=10, rows_per_s=300),
        options=DecodeOptions(gtid_on=pair.gtid),
        standby_port=pair.standby.port,
        fallback_interval_s=6,
    )
    with stream:
        until(lambda: len(stream.chunks()) > 5, what="some pieces")
        pair.master.execute("DELETE FROM shop.log WHERE id < 9", "INSERT INTO shop.log VALUES (1000, 'new')")
        pair.caught_up()
        pair.promote()
        stream.upstreams.switch("standby", "a test")
        pair.standby.execute("INSERT INTO shop.log VALUES (1001, 'newest')")
        stream.done(60)
        until(lambda: log.equals(pair.standby), what="equality")
    assert not log.missing
    assert not log.inside
