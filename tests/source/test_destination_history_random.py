"""After any sequence of statements, rows, streams and restarts, a row has the columns of its time or is refused."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canal_ha.model.position import LogPosition
from canal_ha.source.history.destination_history import DestinationHistory
from canal_ha.source.history.sql_store import in_file
from tests.sampling import LONG
from tests.source.binlog import Binlog, Event, Stream, installed

EXAMPLES = 2000 if LONG else 60
TABLES = ("t", "u", "v")
READABLE = (
    "swap",
    "rename_column",
    "add",
    "drop_column",
    "rename",
    "exchange",
    "create",
    "if_not_exists",
    "drop",
    "like",
)
UNREADABLE = ("unreadable", "nameless")
ROWS = ("row",) * 6
STREAMS = ("open", "open", "open", "read", "read", "read", "read", "read_all", "read_all", "close")
AROUND = (*ROWS, *STREAMS, "rotate", "far", "far", "metadata", "look", "early")
NODES = ("restart", "restart", "fresh")
Step = tuple[str, int]
QUICK = Path("/dev/shm")  # files in memory


class Site:
    """A server, and the nodes that read from it in turn. expiring: records that no stream needs expire early."""

    def __init__(self, binlog: Binlog, directory: Path, *, expiring: bool) -> None:
        self.binlog = binlog
        self.streams: list[Stream] = []
        self.ended: list[Stream] = []
        self.statements: dict[str, list[LogPosition]] = {}  # by table
        self.known_since: LogPosition | None = None  # the node's history has no gap after it
        self.complete = True
        self._directory = directory
        self._expiring = expiring
        self._number = 0
        self._history = self._node()

    def step(self, name: str, number: int) -> None:
        """Run the step with this name. number: chooses its table, stream or position."""
        if name in READABLE or name in UNREADABLE:
            getattr(self, f"_{name}")(TABLES[number % 3], TABLES[(number // 3) % 3])
        else:
            getattr(self, f"_{name}")(number)

    def finish(self) -> None:
        """Let every stream read to the end; check that every row has the right columns or was refused."""
        for stream in self.streams:
            self._checked(stream, 1_000_000)
        self._history.close()
        for stream in (*self.ended, *self.streams):
            for event, seen in stream.seen:
                assert seen in (event.columns, None), f"{event} was read as {seen}"

    def _node(self) -> DestinationHistory:
        more = {"most_records": 3} if self._expiring else {}
        return self.binlog.history(in_file("example", self._directory), **more)

    # ---- what nodes do

    def _open(self, number: int) -> None:
        events = self.binlog.events
        places = [LogPosition("bin.000001", 4), *(LogPosition(e.at.journal, e.at.offset + 10) for e in events)]
        places.append(self.binlog.newest)
        if self.known_since is None:
            self.known_since = self.binlog.newest
        recent = places[-6:] if number % 2 else places
        self.streams.append(Stream(self.binlog, self._history, recent[number // 2 % len(recent)]).open())

    def _read(self, number: int) -> None:
        if self.streams:
            self._checked(self.streams[number % len(self.streams)], 1 + number % 5)

    def _read_all(self, number: int) -> None:
        if self.streams:
            self._checked(self.streams[number % len(self.streams)], 1_000_000)

    def _checked(self, stream: Stream, events: int) -> None:
        before = len(stream.seen)
        stream.read(events)
        for event, seen in stream.seen[before:]:
            if seen is None:
                assert not self._must_be_known(event), f"{event} was refused"

    def _must_be_known(self, event: Event) -> bool:
        """Return whether the history must know the columns of this row."""
        if not self.complete:
            return False
        last = self.statements.get(event.table, [])
        unchanged = not any(at.order > event.at.order for at in last)
        kept = self.known_since is not None and event.at.order > self.known_since.order and not self._expiring
        return unchanged or kept

    def _close(self, number: int) -> None:
        if self.streams:
            self.ended.append(self.streams.pop(number % len(self.streams)))

    def _look(self, number: int) -> None:
        if self.known_since is None:
            self.known_since = self.binlog.newest
        places = [stream.decoded for stream in self.streams if stream.decoded]
        self._history.look(places if places and self._expiring else None)

    def _restart(self, number: int) -> None:
        """Replace the node; its streams go on where they were, in another order."""
        self._history.close()
        self._history = self._node()
        going_on, self.streams = self.streams, []
        for stream in going_on[number % 3 :] + going_on[: number % 3]:
            assert stream.decoded is not None
            self.known_since = self.known_since or self.binlog.newest
            self.streams.append(Stream(self.binlog, self._history, stream.decoded, stream.seen).open())

    def _fresh(self, number: int) -> None:
        """Let another node, which has no records, take over."""
        self._directory = Path(tempfile.mkdtemp(dir=self._directory))
        self.known_since = None
        self._restart(number)

    # ---- what the server does

    def _row(self, number: int) -> None:
        if self.binlog.tables:
            self.binlog.insert(sorted(self.binlog.tables)[number % len(self.binlog.tables)])

    def _rotate(self, number: int) -> None:
        self.binlog.rotate()

    def _far(self, number: int) -> None:
        self.binlog.rotate(9)

    def _metadata(self, number: int) -> None:
        self.binlog.metadata = "FULL" if number % 2 else "MINIMAL"

    def _early(self, number: int) -> None:
        """Let the next reads of the binlog stop before its end."""
        self.binlog.early = number % 4

    def _run(self, sql: str, **tables: tuple[str, ...] | None) -> None:
        self.binlog.run(sql, **tables)
        for table in tables:
            self.statements.setdefault(table, []).append(self.binlog.events[-1].at)

    def _name(self) -> str:
        self._number += 1
        return f"c{self._number}"

    def _swap(self, table: str, other: str) -> None:
        columns = self.binlog.tables.get(table)
        if columns:
            self._run(f"ALTER TABLE {table} MODIFY {columns[-1]} int FIRST", **{table: (columns[-1], *columns[:-1])})

    def _rename_column(self, table: str, other: str) -> None:
        columns = self.binlog.tables.get(table)
        if columns:
            name = self._name()
            self._run(f"ALTER TABLE {table} CHANGE {columns[0]} {name} int", **{table: (name, *columns[1:])})

    def _add(self, table: str, other: str) -> None:
        columns = self.binlog.tables.get(table)
        if columns and len(columns) < 4:
            name = self._name()
            self._run(f"ALTER TABLE {table} ADD {name} int FIRST", **{table: (name, *columns)})

    def _drop_column(self, table: str, other: str) -> None:
        columns = self.binlog.tables.get(table)
        if columns and len(columns) > 1:
            self._run(f"ALTER TABLE {table} DROP {columns[0]}", **{table: columns[1:]})

    def _rename(self, table: str, other: str) -> None:
        columns = self.binlog.tables.get(table)
        if columns and other not in self.binlog.tables:
            self._run(f"RENAME TABLE {table} TO {other}", **{table: None, other: columns})

    def _exchange(self, table: str, other: str) -> None:
        one, two = self.binlog.tables.get(table), self.binlog.tables.get(other)
        if one and two and table != other:
            sql = f"RENAME TABLE {table} TO w, {other} TO {table}, w TO {other}"
            self._run(sql, **{table: two, other: one})

    def _create(self, table: str, other: str) -> None:
        if table not in self.binlog.tables:
            names = (self._name(), self._name())
            self._run(f"CREATE TABLE {table} ({names[0]} int, {names[1]} int)", **{table: names})

    def _if_not_exists(self, table: str, other: str) -> None:
        names = (self._name(), self._name())
        made = {} if table in self.binlog.tables else {table: names}
        self._run(f"CREATE TABLE IF NOT EXISTS {table} ({names[0]} int, {names[1]} int)", **made)

    def _drop(self, table: str, other: str) -> None:
        if table in self.binlog.tables:
            self._run(f"DROP TABLE {table}", **{table: None})

    def _like(self, table: str, other: str) -> None:
        columns = self.binlog.tables.get(other)
        if columns and table not in self.binlog.tables:
            self._run(f"CREATE TABLE {table} LIKE {other}", **{table: columns})

    def _unreadable(self, table: str, other: str) -> None:
        columns = self.binlog.tables.get(table)
        if columns:
            self.complete = False
            self._run(f"ALTER TABLE {table} COMMENT 'C:\\'", **{table: columns[::-1]})

    def _nameless(self, table: str, other: str) -> None:
        columns = self.binlog.tables.get(table)
        if columns:
            self.complete = False
            self._run("ALTER TABLE 'oops", **{table: columns[::-1]})


def steps(*names: str) -> st.SearchStrategy[list[Step]]:
    """Return a strategy for lists of these steps, in any order."""
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 2**12)), min_size=20, max_size=100)


def played(happening: list[Step], *, expiring: bool = False, racing: list[Step] | None = None) -> None:
    """Run all steps and check the rows. racing: steps that run while a definition is read."""
    binlog = Binlog({"t": ("a", "b"), "u": ("b", "a")})
    waiting = list(racing or ())
    with (
        pytest.MonkeyPatch.context() as patch,
        installed(patch, binlog),
        tempfile.TemporaryDirectory(dir=QUICK if QUICK.is_dir() else None) as directory,
    ):
        site = Site(binlog, Path(directory), expiring=expiring)

        def asking() -> None:
            if waiting:
                site.complete = False
                site.step(*waiting.pop())

        binlog.asking = asking
        for name, number in happening:
            site.step(name, number)
        site.finish()


@settings(max_examples=EXAMPLES)
@given(steps(*READABLE, *AROUND, *NODES))
def test_rows_have_the_columns_of_their_time_and_are_known_where_statements_are(happening: list[Step]) -> None:
    """No row is wrong; none is refused if the node knew its table, or if no statement followed it."""
    played(happening)


@settings(max_examples=EXAMPLES // 2)
@given(steps(*READABLE, *UNREADABLE, *AROUND, *NODES), st.booleans())
def test_rows_are_never_wrong_where_statements_cannot_be_read_and_histories_expire(
    happening: list[Step], expiring: bool
) -> None:
    """No row is wrong after statements that cannot be read, which put one table or every table in doubt."""
    played(happening, expiring=expiring)


@settings(max_examples=EXAMPLES // 2)
@given(steps(*READABLE, *AROUND, *NODES), steps(*READABLE, *ROWS))
def test_rows_are_never_wrong_where_statements_run_while_definitions_are_asked_for(
    happening: list[Step], racing: list[Step]
) -> None:
    """No row is wrong if tables change while snapshots and single definitions are read."""
    played(happening, racing=racing)
