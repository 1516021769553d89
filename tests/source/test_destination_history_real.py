"""A history on real servers, whose reported end may lie beyond the events that they give out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from canal_ha.decode.table_map import TableMap
from canal_ha.decode.types import LONG
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import examine
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.connection.tables import Key, Tables
from canal_ha.source.history.destination_history import DestinationHistory
from canal_ha.source.history.journal_times import JournalTimes
from canal_ha.source.positions.scan import Scanner
from lab import MariaDB, MySQL, SqlServer
from tests.source.reading import config_of, newest
from tests.waiting import until

pytestmark = pytest.mark.real


@dataclass(eq=False)
class Standing:
    """A dump that stays at its start."""

    decoded: LogPosition


def silent(name: str, /, *, alarm: bool = False, **facts: object) -> None:
    """Report nothing."""


def scanner_of(server: SqlServer) -> Scanner:
    """Return a scanner with a connection of its own."""
    config = config_of(server)
    session = SourceSession(config, config.master)
    return Scanner(session, examine(session), config, config.master)


def test_an_alter_that_is_written_but_not_on_the_disk_yet_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ALTER that runs during a snapshot counts, although with sync_binlog=1 a dump does not give it out at once."""
    with MySQL() as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a int, b int)", "SET GLOBAL sync_binlog = 1")
        server.execute(
            "SET GLOBAL binlog_row_metadata = 'MINIMAL'", "SET GLOBAL binlog_group_commit_sync_delay = 1000000"
        )
        start = newest(server)
        altering = threading.Thread(target=server.execute, args=("ALTER TABLE d.t MODIFY b int FIRST",))
        fetch_all = Tables.fetch_all

        def alter_behind(tables: Tables, names: Sequence[Key], server_id: str = "") -> list[tuple[Key, str | None]]:
            found = fetch_all(tables, names, server_id)
            if ("d", "t") in names and altering.ident is None:
                altering.start()
                until(lambda: newest(server).order > start.order, what="an ALTER in the binlog")
            return found

        monkeypatch.setattr(Tables, "fetch_all", alter_behind)
        config = config_of(server)
        node = DestinationHistory(config, Tables(config).fetch, None, silent)
        view = node.view(start, Standing(start))
        altering.join()
        end = newest(server)
        scanner_of(server).statements(start, end, view.apply)
        row = TableMap(1, "d", "t", bytes([LONG] * 2), (0, 0), (True, True), None, None)
        columns = view.table(row, replace(end, offset=end.offset + 100)).columns
        assert [column.name for column in columns] == ["b", "a"]
        node.close()


@pytest.mark.parametrize("make", [MySQL, MariaDB])
def test_journals_after_a_reset_have_other_times(make: Callable[..., SqlServer]) -> None:
    """The time of a journal survives a restart of the server and tells a binlog from the one after RESET MASTER."""
    with make() as server:
        server.execute("FLUSH BINARY LOGS")
        before = JournalTimes({})
        journals = server.journals()
        for name in journals:
            assert before.agree(name, scanner_of(server), again=False)
        server.restart()
        assert JournalTimes(before.known).agree(server.journals()[-1], scanner_of(server), again=False)
        time.sleep(1.1)  # journals have their times in whole seconds
        server.execute("RESET BINARY LOGS AND GTIDS" if server.flavor == "mysql" else "RESET MASTER")
        while len(server.journals()) < len(journals) + 2:
            server.execute("FLUSH BINARY LOGS")
        assert not JournalTimes(before.known).agree(server.journals()[-1], scanner_of(server), again=False)


def test_journals_without_a_transaction_are_read_to_their_end(source_server: SqlServer, database: str) -> None:
    """The scanner reads to the end that the server reports, even if the last journals have no transaction."""
    source_server.execute(f"CREATE DATABASE {database}")
    start = newest(source_server)
    scanner = scanner_of(source_server)
    for sql in (f"CREATE TABLE {database}.t (a int)", "", "", f"INSERT INTO {database}.t VALUES (1)", ""):
        source_server.execute(sql or "FLUSH BINARY LOGS")

        def is_reached() -> bool:
            end = newest(source_server)
            reached = scanner.statements(start, end, lambda at, schema, text: None)
            return (reached.journal, reached.offset) == (end.journal, end.offset)

        until(is_reached, seconds=10, what="reading to the end")
    told: list[str] = []
    first = newest(source_server)
    assert scanner.statements(first, first, lambda at, schema, text: told.append(text)).order == first.order
    assert told == []
    scanner.session.close()
