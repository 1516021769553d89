"""One stream for each client id, on a real server: starts, filters, parking, limits, UNSUBSCRIBE."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from canal_ha.errors import ServerRefused
from lab import MySQL, Node, follow
from lab.proxy import Network
from tests.node.following import column, destination_of, following, read, silence, stream_of
from tests.node.site import Site
from tests.waiting import until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def site(mysql: MySQL) -> Iterator[Site]:
    """Yield destinations with different settings. `placed` starts at a position before row 1 of `early`."""
    schema = f"streams_{os.getpid()}"
    mysql.execute(f"CREATE DATABASE {schema}")
    for table in ("a", "b", "early"):
        mysql.execute(f"CREATE TABLE {schema}.{table} (id int PRIMARY KEY, v varchar(20))")
    journal, position = mysql.position()
    mysql.execute(f"INSERT INTO {schema}.early VALUES (1, 'early')")
    own = rf"{schema}\\..*"  # a properties file needs each backslash twice
    settings: dict[str, dict[str, str]] = {
        "example": {"canal.instance.filter.regex": rf"{schema}\\.a"},
        "fresh": {"canal.instance.filter.regex": own},
        "placed": {
            "canal.instance.filter.regex": own,
            "canal.instance.master.journal.name": journal,
            "canal.instance.master.position": str(position),
        },
        "parking": {"canal.instance.stream.idle": "1"},
        "few": {"canal.instance.stream.max": "1", "canal.instance.stream.idle": "1"},
        "both": {"canal.instance.filter.regex": rf"{schema}\\.a", "canal.instance.filter.client.mode": "and"},
    }
    destinations = {name: follow(mysql, properties) for name, properties in settings.items()}
    with Node(destinations) as node:
        yield Site(mysql, node, schema)


def test_the_first_client_begins_where_the_source_stood(site: Site) -> None:
    """The first client gets rows that were written before it connected; a second client id begins at the end."""
    assert destination_of(site.node, "fresh")["newest"]
    assert (site.node.conf / "fresh" / "parse.dat").exists()
    site.insert("early", 100, 101)
    with following(site.node, "fresh") as first, following(site.node, "fresh", 1002) as second:
        assert not (site.node.conf / "fresh" / "parse.dat").exists()
        rows = read(first, 2)
        assert column(rows)[-2:] == [100, 101]
        silence(second, 0.5)
        site.insert("early", 102)
        assert column(read(first, 1)) == column(read(second, 1)) == [102]


def test_rows_written_as_soon_as_a_node_runs_reach_the_first_client_also_from_a_slow_source(mysql: MySQL) -> None:
    """A destination is not shown as running before its node knows where the source stood."""
    schema = f"slow_{os.getpid()}"
    mysql.execute(f"CREATE DATABASE {schema}", f"CREATE TABLE {schema}.t (id int PRIMARY KEY)")
    with Network() as network:
        link = network.link(mysql.port)
        link.delay(0.03)
        settings = {"canal.instance.master.address": link.address, "canal.instance.filter.regex": rf"{schema}\\..*"}
        with Node({"slow": follow(mysql, settings)}) as node:
            mysql.execute(f"INSERT INTO {schema}.t VALUES (1)")
            with following(node, "slow") as client:
                mysql.execute(f"INSERT INTO {schema}.t VALUES (2)")
                assert column(read(client, 2)) == [1, 2]


def test_a_configured_position_wins(site: Site) -> None:
    """The first client and later clients begin at the configured position."""
    for client_id in (1001, 7):
        with following(site.node, "placed", client_id, rf"{site.schema}\.early") as client:
            assert column(read(client, 1))[0] == 1


def test_two_client_ids_do_not_steal_from_each_other(site: Site) -> None:
    """Two client ids get every row. A third has its own filter, and its ACKs move no other cursor."""
    only_b = rf"{site.schema}\.b"
    with (
        following(site.node, "example") as first,
        following(site.node, "example", 1002) as second,
        following(site.node, "example", 1003, only_b) as third,
    ):
        for number in range(1, 6):
            site.insert("a", number)
            site.insert("b", number)
        assert column(read(first, 5)) == [1, 2, 3, 4, 5]
        before = stream_of(site.node, "example", 1002)["cursor"]
        rows = read(third, 5)
        assert (column(rows), {row.table for row in rows}) == ([1, 2, 3, 4, 5], {"b"})
        assert stream_of(site.node, "example", 1002)["cursor"] == before
        assert column(read(second, 5)) == [1, 2, 3, 4, 5]


def test_filters_replace_or_must_both_hold(site: Site) -> None:
    """A client's filter replaces the server's, and an empty one keeps it. In mode `and` a row must match both."""
    everything, only_b = rf"{site.schema}\.(a|b)", rf"{site.schema}\.b"
    with (
        following(site.node, "example", 21) as server_s,
        following(site.node, "example", 22, only_b) as own,
        following(site.node, "both", 23, only_b) as neither,
        following(site.node, "both", 24, everything) as both,
    ):
        site.insert("b", 50)
        site.insert("a", 51)
        assert column(read(server_s, 1)) == [51]
        assert column(read(own, 1)) == [50]
        assert column(read(both, 1)) == [51]
        silence(neither, 0.5)
        own.subscribe(everything)  # a changed filter starts again at the cursor: row 50 was acknowledged
        site.insert("a", 52)
        rows = column(read(own, 1))
        assert (rows if 52 in rows else rows + column(read(own, 1))) in ([51, 52], [52])
        with pytest.raises(ServerRefused, match="regular expression"):
            own.subscribe("(")  # comes last, because canal's clients are out of step after an error


def test_a_waiting_get_keeps_a_stream_open(site: Site) -> None:
    """A GET that waits longer than the idle time keeps its stream open."""
    with following(site.node, "parking", 31, "none") as client:
        silence(client, 0.2)
        states = []
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(client.get_without_ack, 1000, 2500)
            while not waiting.done():
                states.append(stream_of(site.node, "parking", 31)["state"])
                time.sleep(0.1)
        assert not waiting.result()
        assert set(states[:-1]) == {"open"}  # the last state may be of the time after the GET


def test_a_roll_back_after_parking_repeats_from_the_cursor(site: Site) -> None:
    """Batches delivered and not acknowledged come again after a roll-back, complete and in order."""
    tables = site.table("back")
    with following(site.node, "parking", 32, tables) as client:
        for number in range(15):
            site.insert("back", number)
        read(client, 1, size=1)
        until(lambda: client.get_without_ack(1, 100) or None, what="a batch in flight")
        until(lambda: stream_of(site.node, "parking", 32)["state"] == "parked", what="parking", seconds=5)
        client.rollback()
        rows = column(read(client, 1))
        while rows[-1] != 14:
            rows += column(read(client, 1))
        assert rows == list(range(rows[0], 15))


def test_one_stream_too_many(site: Site) -> None:
    """The second client id is refused with the key's name, and accepted when the first stream is parked."""
    with following(site.node, "few", tables="none") as first:
        silence(first, 0.2)
        refusal = r"1 open streams already \(canal\.instance\.stream\.max\)"
        with pytest.raises(ServerRefused, match=refusal), following(site.node, "few", 1002):
            pass
        until(lambda: stream_of(site.node, "few")["state"] == "parked", what="parking", seconds=5)
        with following(site.node, "few", 1002):
            assert stream_of(site.node, "few", 1002)["state"] == "open"
            with pytest.raises(ServerRefused, match=refusal):
                first.get_without_ack(1, 0)


def test_unsubscribe_forgets(site: Site) -> None:
    """UNSUBSCRIBE removes filter and cursor from the file; a new SUBSCRIBE begins at the end.

    Another client stays, because a destination without clients keeps a start for the next one.
    """
    tables = site.table("gone")
    file = site.node.conf / "example" / "meta.dat"

    def known() -> set[int]:
        return {data["clientIdentity"]["clientId"] for data in json.loads(file.read_text())["clientDatas"]}

    with following(site.node, "example", 42, tables), following(site.node, "example", 41, tables) as client:
        site.insert("gone", 1)
        assert column(read(client, 1)) == [1]
        client.unsubscribe()
        assert 41 not in known()
        assert not site.dumps("example", 41) or until(lambda: not site.dumps("example", 41), what="its dump's end")
        with pytest.raises(ServerRefused, match="should subscribe first"):
            client.get_without_ack(1, 0)
        site.insert("gone", 2)
        client.subscribe(tables)
        assert 41 in known()
        site.insert("gone", 3)
        assert column(read(client, 1)) == [3]
