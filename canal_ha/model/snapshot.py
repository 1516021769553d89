"""SnapshotState: how far the snapshot of a client has come, as text that is stored with the client's cursor."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from functools import lru_cache
from typing import Any

from canal_ha.errors import SnapshotRefused
from canal_ha.model.condition import names_in
from canal_ha.model.excerpt import excerpt, printable, some
from canal_ha.model.surrogates import has_surrogate

MOST_CHARACTERS = 65536  # of the text without an error; every write of the cursor contains it
MOST_TABLES = 5000  # of a request
HIDDEN = "***"  # stands for the name of a table, or for a condition, that the reader may not see
_NAME_CHARACTERS = 200  # of schema.table; a server allows 64 of each
_KEPT_FREE = 16384  # of them when a snapshot begins: for the key of a row, 3 KiB in hex digits
# not in the text unless they are set: older nodes do not know them
_UNLESS_SET = (
    "ranges",
    "without_key",
    "attempt",
    "attempt_rows",
    "connections",
    "rows_per_s_most",
    "left_out",
    "beginnings",
)
_ALL_TABLES = "*"  # in `beginnings`


@dataclass(frozen=True, slots=True)
class InitialSnapshot:
    """The tables with whose existing rows a client begins.

    tables: `schema.table` each; `*` alone: all that the client's filter keeps; () for no snapshot.
    filter: chooses the tables for `*` where the subscription has no filter.
    again: a client that has a cursor reads them too, as SnapshotAction.ADD.
    gone: tables that the client has seen go: its unfinished snapshot leaves those out that the source has no more.
    """

    tables: tuple[str, ...] = ()
    filter: str = ""
    again: bool = False
    gone: tuple[str, ...] = ()


NO_SNAPSHOT = InitialSnapshot()


def named_tables(given: Sequence[str]) -> tuple[str, ...]:
    """Return the tables that a program names. given: several, or one as a text, which is no sequence of letters."""
    return (given,) if isinstance(given, str) and given else tuple(given)


class SnapshotPhase(Enum):
    """What a snapshot is doing."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """The rest of a part of a table, between two keys. A key is the texts of its columns.

    table: index of the table.
    after: the key of the last row acknowledged, or of the last row before the part; () before the first row.
    until: the key of the part's last row; () for the end of the table.
    """

    table: int
    after: tuple[str, ...] = ()
    until: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """A snapshot, and what of it the client has acknowledged.

    id: of the snapshot, as the entries carry it.
    tables: `schema.table`, in the order of reading.
    where: a condition in SQL for some of the tables.
    phase: what it is doing.
    table: how many tables are read to their end; len(tables) when all are.
    ranges: what is left of the tables that are begun, several parts of one table or of several ones.
    chunks, rows: acknowledged.
    total: rows of all tables as the server estimates them; 0 while unknown.
    began_ms, ended_ms: wall time; 0: not yet.
    error: why it failed; "" otherwise.
    without_key: whether tables without a key may be read, in one go.
    attempt: number of the read of a table without a key, larger than those of earlier attempts; 0 for other tables.
    attempt_rows: acknowledged of that read.
    connections, rows_per_s_most: at most, for this snapshot; 0: as the destination is configured.
    left_out: tables that were taken out of `tables` before all their rows were read: the snapshot is not complete.
    beginnings: numbers of the last time that tables began again, because others with their names may have other rows;
        see `beginning`.
    """

    id: str
    tables: tuple[str, ...]
    where: Mapping[str, str] = field(default_factory=dict)
    phase: SnapshotPhase = SnapshotPhase.RUNNING
    table: int = 0
    ranges: tuple[SnapshotRange, ...] = ()
    chunks: int = 0
    rows: int = 0
    total: int = 0
    began_ms: int = 0
    ended_ms: int = 0
    error: str = ""
    without_key: bool = False
    attempt: int = 0
    attempt_rows: int = 0
    connections: int = 0
    rows_per_s_most: int = 0
    left_out: tuple[str, ...] = ()
    beginnings: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_text(cls, text: str) -> SnapshotState | None:
        """Return the state; None for "". Raises ValueError for a text that `text` did not make."""
        return _state_of(text) if text else None

    @property
    def text(self) -> str:
        """JSON of the fields, as older nodes read it where they can.

        Raises ValueError beyond MOST_CHARACTERS, `error` not counted.
        """
        facts = {name: getattr(self, name) for name in _FIELDS}  # asdict takes four times as long, for every piece
        facts |= {"phase": self.phase.value, "ranges": [_facts_of(each) for each in self.ranges]}
        if all(each == SnapshotRange(self.table, each.after) for each in self.ranges) and len(self.ranges) < 2:
            facts |= {"ranges": (), "key": [text for each in self.ranges for text in each.after]}
        facts = {name: value for name, value in facts.items() if value or name not in _UNLESS_SET}
        text = json.dumps(facts, separators=(",", ":"), ensure_ascii=False)
        if len(text) - len(self.error) > MOST_CHARACTERS:
            raise ValueError(f"a snapshot's state of {len(text)} characters; at most {MOST_CHARACTERS} are stored")
        return text

    def facts(self) -> dict[str, Any]:
        """Return the fields for people and programs, without values of rows, which not everybody may see."""
        facts = {**asdict(self), "phase": self.phase.value, "reading": self.reading}
        del facts["ranges"], facts["beginnings"]
        return facts

    @property
    def active(self) -> bool:
        """Whether it is to be read on."""
        return self.phase is SnapshotPhase.RUNNING

    @property
    def over(self) -> bool:
        """Whether nothing of it will be read any more."""
        return self.phase in (SnapshotPhase.DONE, SnapshotPhase.CANCELLED)

    @property
    def how_it_ends(self) -> str:
        """What a person does to have it end by itself."""
        return "wait for its end" if self.active else "resume it and wait for its end"

    @property
    def reading(self) -> tuple[str, ...]:
        """The tables that are begun and not read to their end; if there is none, the next one."""
        numbers = dict.fromkeys(each.table for each in self.ranges) or (self.table,)
        return tuple(self.tables[number] for number in numbers if 0 <= number < len(self.tables))

    @property
    def remaining(self) -> tuple[str, ...]:
        """The tables that are not read to their end."""
        return tuple(self.tables[number] for number in self.left)

    @property
    def left(self) -> list[int]:
        """The indices of the tables that are not read to their end."""
        return [*sorted({each.table for each in self.ranges}), *range(self.begun, len(self.tables))]

    @property
    def begun(self) -> int:
        """How many tables are begun, those that are read included. They are the first ones."""
        return self.table + len({each.table for each in self.ranges})

    def without(self, tables: Collection[str], new_id: str) -> SnapshotState:
        """Return the state without some of the remaining tables. Their rows that the client has got stay.

        new_id: of the state, so that no ACK of the former one, which counts other tables, replaces it.
        """
        out = dict.fromkeys(table for table in self.remaining if table in tables)
        kept = [number for number, table in enumerate(self.tables) if table not in out]
        return replace(
            self,
            id=new_id,
            tables=tuple(self.tables[number] for number in kept),
            where={table: text for table, text in self.where.items() if table not in out},
            ranges=tuple(replace(each, table=kept.index(each.table)) for each in self.ranges if each.table in kept),
            rows=self.rows - self.attempt_rows,
            attempt_rows=0,
            left_out=(*self.left_out, *out),
            beginnings={table: count for table, count in self.beginnings.items() if table not in out},
        )

    def begin_table(self) -> SnapshotState:
        """Return the state with the next table as one more range."""
        return replace(self, ranges=(*self.ranges, SnapshotRange(self.begun)))

    def beginning(self, table: str) -> int:
        """Return the number of the last time that a table began again; 0: never. It grows from one time to the next.

        States with the same number describe the same rows of it.
        """
        return self.beginnings.get(table, 0) + self.beginnings.get(_ALL_TABLES, 0)

    def begin_again(self, *tables: int, now_ms: int) -> SnapshotState:
        """Return the state in which these tables are not read. Each that is begun is one range from its first row.

        now_ms: wall time. It makes the number unique: two feeds can go on from one stored state, and begin the same
            table again for different statements. A batch of the first one can be acknowledged late.
        If the text has no room for the new numbers, all tables begin again.
        """
        names = [self.tables[number] for number in tables]
        return self._with_beginnings({name: max(self.beginning(name) + 1, now_ms) for name in names})

    def begun_again_as(self, other: SnapshotState) -> SnapshotState:
        """Return the state in which no table is read that began again later in another state."""
        if self.beginnings == other.beginnings:
            return self
        known = set(other.tables)
        numbers = {table: other.beginning(table) for table in self.tables if table in known}
        return self._with_beginnings({name: count for name, count in numbers.items() if count > self.beginning(name)})

    def _with_beginnings(self, beginnings: Mapping[str, int]) -> SnapshotState:
        """Return the state in which these tables are not read. beginnings: their new numbers."""
        if not beginnings:
            return self
        again = {number for number, table in enumerate(self.tables[: self.begun]) if table in beginnings}
        others = tuple(each for each in self.ranges if each.table not in again)
        in_part = {each.table for each in self.ranges}
        for_all = self.beginnings.get(_ALL_TABLES, 0)
        state = replace(
            self,
            table=self.table - len(again - in_part),
            ranges=(*others, *map(SnapshotRange, sorted(again))),
            beginnings={**self.beginnings, **{table: count - for_all for table, count in beginnings.items()}},
        )
        if state._fits(MOST_CHARACTERS - _KEPT_FREE):
            return state
        most = max(map(state.beginning, state.tables))
        rows = self.rows - self.attempt_rows
        return replace(self, table=0, ranges=(), rows=rows, attempt_rows=0, beginnings={_ALL_TABLES: most})

    def _fits(self, most: int) -> bool:
        """Return whether the text has at most so many characters, `error` not counted."""
        try:
            return len(self.text) - len(self.error) <= most
        except ValueError:
            return False

    def put(self, old: SnapshotRange, new: Sequence[SnapshotRange]) -> SnapshotState:
        """Return the state with other ranges of the same table in the place of one."""
        at = self.ranges.index(old)
        return replace(self, ranges=(*self.ranges[:at], *new, *self.ranges[at + 1 :]))

    def behind(self, last: SnapshotRange, at_ms: int) -> SnapshotState:
        """Return the state once the last rows of a range are acknowledged. at_ms: wall time."""
        state = replace(self.put(last, ()), attempt_rows=0)
        if any(each.table == last.table for each in state.ranges):
            return state
        state = replace(state, table=state.table + 1)
        return state if state.table < len(state.tables) else state.ended(SnapshotPhase.DONE, at_ms)

    def new_attempt(self, whole: SnapshotRange, now_ms: int) -> SnapshotState:
        """Return the state when the read of a table without a key begins. The rows of an earlier attempt are void.

        whole: the range of the table; it comes first.
        now_ms: wall time. It makes the number unique: a client may know rows of an attempt that it never acknowledged.
        """
        return replace(
            self,
            ranges=(whole, *(each for each in self.ranges if each != whole)),
            rows=self.rows - self.attempt_rows,
            attempt=max(self.attempt + 1, now_ms),
            attempt_rows=0,
        )

    def with_piece(self, rows: int) -> SnapshotState:
        """Return the state once these next rows of an attempt are acknowledged."""
        return replace(self, chunks=self.chunks + 1, rows=self.rows + rows, attempt_rows=self.attempt_rows + rows)

    def without_attempt(self) -> SnapshotState:
        """Return the state for a table with a key. The rows of an attempt that has not ended are void."""
        if not self.attempt:
            return self
        return replace(self, rows=self.rows - self.attempt_rows, attempt=0, attempt_rows=0)

    def piece_id(self, number: int) -> str:
        """Return the id that the rows of a piece of this attempt carry. number: from 1."""
        return f"{self.id}.{self.attempt}.{number}"

    def ended(self, phase: SnapshotPhase, at_ms: int, error: str = "") -> SnapshotState:
        """Return the state after the end."""
        return replace(self, phase=phase, ended_ms=at_ms, error=error)


_FIELDS = tuple(each.name for each in fields(SnapshotState))


class SnapshotAction(Enum):
    """What a person can ask of a snapshot.

    ADD: read tables from their first row, behind what is left of it, or before that if it has failed.
    """

    START = "start"
    ADD = "add"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"


_READING = ("tables", "where", "without_key", "connections", "rows_per_s_most")
_FITTING = {
    SnapshotAction.START: _READING,
    SnapshotAction.ADD: _READING,
    SnapshotAction.RESUME: ("without_key", "leave_out"),
}
"""Fields of a request that an action takes."""


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """What a person asks. The fields are those of SnapshotState.

    tables, where: only for START and ADD.
    connections, rows_per_s_most: the same; ADD keeps those of the snapshot that goes on.
    without_key: for START and RESUME; RESUME keeps it if the snapshot has it.
    leave_out: for RESUME: tables that are not to be read.
    """

    action: SnapshotAction
    tables: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    without_key: bool = False
    connections: int = 0
    rows_per_s_most: int = 0
    leave_out: tuple[str, ...] = ()


def changed(
    stored: str,
    request: SnapshotRequest,
    new_id: str,
    now_ms: int,
    shown: Callable[[str], bool] = lambda table: True,
) -> SnapshotState:
    """Return the state after a request. Raises SnapshotRefused.

    stored: the text of the client's last snapshot; "" if it never had one.
    new_id: of a snapshot that begins, or has other tables.
    shown: whether the account that asks may know the name of a table of the snapshot.
    """
    _check_fits(request)
    state = read(stored)  # if somebody damaged it, a new one can begin
    going_on = state is not None and state.phase in (SnapshotPhase.RUNNING, SnapshotPhase.PAUSED)
    if request.action is SnapshotAction.START:
        if state is not None and going_on:
            raise SnapshotRefused(
                f"snapshot {state.id} is {state.phase.value}: cancel it first, or {state.how_it_ends}"
            )
        return _begun(request, new_id, now_ms)
    if request.action is SnapshotAction.ADD:
        begun = _begun(request, new_id, now_ms)
        unfinished = going_on or (state is not None and state.phase is SnapshotPhase.FAILED)
        return _behind(state, begun) if state is not None and unfinished else begun
    if state is None:
        raise SnapshotRefused("the client has no snapshot: start one")
    match request.action, state.phase:
        case SnapshotAction.PAUSE, SnapshotPhase.RUNNING | SnapshotPhase.PAUSED:
            return replace(state, phase=SnapshotPhase.PAUSED)
        case SnapshotAction.RESUME, SnapshotPhase.RUNNING | SnapshotPhase.PAUSED | SnapshotPhase.FAILED:
            allowed = state.without_key or request.without_key
            resumed = replace(state, phase=SnapshotPhase.RUNNING, ended_ms=0, error="", without_key=allowed)
            return _without(resumed, request.leave_out, new_id, shown) if request.leave_out else resumed
        case SnapshotAction.CANCEL, _ if going_on or state.phase is SnapshotPhase.FAILED:
            return state.ended(SnapshotPhase.CANCELLED, now_ms)
    raise SnapshotRefused(f"snapshot {state.id} is {state.phase.value}: it cannot {request.action.value}")


def without_gone(stored: str, gone: Collection[str], new_id: str) -> SnapshotState | None:
    """Return the state of an unfinished snapshot without tables that are gone; None if there is nothing to leave out.

    stored: the text of the client's last snapshot.
    gone: their names.
    new_id: of the snapshot then.
    A snapshot that has failed goes on.
    """
    state = read(stored)
    if state is None or state.over:
        return None
    if not set(state.remaining) & set(gone):
        return None
    if state.phase is SnapshotPhase.FAILED:
        state = replace(state, phase=SnapshotPhase.RUNNING, ended_ms=0, error="")
    return _checked(state.without(gone, new_id))


def _check_fits(request: SnapshotRequest) -> None:
    """Raise SnapshotRefused for a field that the action does not take: whoever set it expects something of it."""
    fitting = ("action", *_FITTING.get(request.action, ()))
    if others := [each.name for each in fields(request) if each.name not in fitting and getattr(request, each.name)]:
        known = ", ".join(fitting[1:]) or "nothing"
        raise SnapshotRefused(f"{request.action.value} does not take {', '.join(others)}; it takes {known}")


def check_tables(tables: Sequence[str]) -> None:
    """Raise SnapshotRefused if somebody names no table, too many, one twice, or something else."""
    if not tables:
        raise SnapshotRefused("name at least one table, as schema.table")
    if len(tables) > MOST_TABLES:
        raise SnapshotRefused(f"{len(tables)} tables; a snapshot takes at most {MOST_TABLES} at a time")
    if len(set(tables)) < len(tables):
        raise SnapshotRefused("a table is named twice")
    for table in tables:
        schema, dot, name = table.partition(".")
        if not (schema and dot and name) or len(table) > _NAME_CHARACTERS or has_surrogate(table):
            raise SnapshotRefused(f"{printable(excerpt(table))} is no table: write schema.table")


def _begun(request: SnapshotRequest, new_id: str, now_ms: int) -> SnapshotState:
    check_tables(request.tables)
    for table in request.where.keys() - set(request.tables):
        raise SnapshotRefused(f"a condition for {printable(excerpt(table))}, which is not one of the tables")
    state = _checked(
        SnapshotState(
            new_id,
            request.tables,
            dict(request.where),
            began_ms=now_ms,
            without_key=request.without_key,
            connections=request.connections,
            rows_per_s_most=request.rows_per_s_most,
        )
    )
    for table, condition in request.where.items():
        if not condition.strip():
            raise SnapshotRefused(f"the condition for {table} is blank: leave it out to read the whole table")
        names_in(condition)
    return state


def _without(state: SnapshotState, tables: Sequence[str], new_id: str, shown: Callable[[str], bool]) -> SnapshotState:
    """Return a snapshot without some of its remaining tables. Raises SnapshotRefused for other ones."""
    remaining = set(state.remaining)
    if others := [table for table in tables if table not in remaining]:
        left = some([table for table in state.remaining if shown(table)]) or "no table"
        raise SnapshotRefused(f"snapshot {state.id} has not left to read {some(others)}. It has left to read {left}")
    return _checked(state.without(set(tables), new_id))


def _checked(state: SnapshotState, or_else: str = "") -> SnapshotState:
    """Return the state. Raises SnapshotRefused if it is too large to store. or_else: what else helps then."""
    try:
        for each in (state, replace(state, ranges=(SnapshotRange(0, (" " * _KEPT_FREE,)),))):
            each.text  # noqa: B018  # it raises
    except ValueError as error:
        how = "take fewer tables at a time, or shorter conditions" if state.where else "take fewer tables at a time"
        raise SnapshotRefused(f"{error}: {how}{or_else}") from error
    return state


def _behind(state: SnapshotState, added: SnapshotState) -> SnapshotState:
    """Return a snapshot of the tables of another one, then of the added ones, from their first row.

    If the other one has failed, what it has left comes behind the added ones and is tried again, from its first row.
    Tables that are read stay, unless they are added: another one may take the name of one of them. An acknowledgement
    of a batch of the other one may bring their new beginnings, so all tables keep their numbers of these.
    It has an id of its own, so that no ACK of the other one replaces it.
    """
    failed_one = state.phase is SnapshotPhase.FAILED
    again, unread = set(added.tables), set(state.left)
    read = [number for number, table in enumerate(state.tables) if number not in unread and table not in again]
    left = [number for number in state.left if state.tables[number] not in again]
    place = {number: at for at, number in enumerate((*read, *left))}
    kept = tuple(state.tables[number] for number in left)
    ranges = () if failed_one else (each for each in state.ranges if each.table in place)
    return _checked(
        replace(
            state,
            id=added.id,
            tables=(
                *(state.tables[number] for number in read),
                *((*added.tables, *kept) if failed_one else (*kept, *added.tables)),
            ),
            where={table: text for table, text in state.where.items() if table not in again} | dict(added.where),
            phase=SnapshotPhase.RUNNING if failed_one else state.phase,
            table=len(read),
            ranges=tuple(replace(each, table=place[each.table]) for each in ranges),
            ended_ms=0,
            error="",
            total=0,
            rows=state.rows - state.attempt_rows,
            without_key=state.without_key or added.without_key,
            attempt_rows=0,
            left_out=tuple(table for table in state.left_out if table not in again),
        ),
        f". Or cancel snapshot {state.id} first, or {state.how_it_ends}",
    )


def advanced(stored: str, progress: str, *, read_again: bool = False) -> str:
    """Return the stored text after this progress; unchanged if it is of another snapshot, or older.

    read_again: a newer feed has read on from a stored state. It makes a new attempt at a table without a key, so
        progress of the attempt before does not count, nor any behind that table.
    A snapshot that somebody has paused or cancelled meanwhile stays so. A table that began again in either text counts
    as not read. This also holds if the progress does not count otherwise, because the client has acknowledged the
    statement behind it. The progress of the newest feed overrides the stored beginnings, unless that feed has failed.
    """
    if not progress or not stored:
        return stored
    try:
        old, new = SnapshotState.from_text(stored), SnapshotState.from_text(progress)
    except ValueError:
        return stored
    if old is None or new is None:
        return stored
    kept = old if old.over else old.begun_again_as(new)
    if read_again or old.phase is SnapshotPhase.FAILED:
        new = new.begun_again_as(old)
    older = new.id != kept.id or (new.table, new.chunks) < (kept.table, kept.chunks)
    if older or (read_again and (new.attempt or (new.without_key and new.table > kept.table))):
        return stored if kept is old else kept.text
    if not (old.active and new.phase is SnapshotPhase.DONE and not new.left):
        new = replace(new, phase=old.phase, ended_ms=old.ended_ms, error=old.error)
    return new.text


def failed(stored: str, end: str) -> str:
    """Return the stored text after an error has ended the snapshot; unchanged if it is of another one, or over.

    end: the state at the error. Its progress does not count: the client has not acknowledged all of it. But a table
        that it begins again is another one than the stored state is about.
    """
    try:
        old, new = SnapshotState.from_text(stored), SnapshotState.from_text(end)
    except ValueError:
        return stored
    if old is None or new is None or new.id != old.id or not old.active:
        return stored
    return old.begun_again_as(new).ended(SnapshotPhase.FAILED, new.ended_ms, new.error).text


def read(stored: str) -> SnapshotState | None:
    """Return the stored state; None for "" and for a text that somebody damaged."""
    try:
        return SnapshotState.from_text(stored)
    except ValueError:
        return None


def told(stored: str) -> str:
    """Return a stored text as clients get it: without keys of rows, which they may see only hashed or masked.

    It has no conditions, which tell about rows, and no `left_out` and `beginnings`, because older clients would take a
    text with these fields for none.
    """
    state = read(stored)
    return replace(state, where={}, ranges=(), left_out=(), beginnings={}).text if state else ""


@lru_cache(maxsize=8)  # an ACK asks several times for the same state
def _state_of(text: str) -> SnapshotState:
    try:
        body = json.loads(text)
        key = _texts(body.pop("key", ()))
        ranges = tuple(_range(each) for each in body.get("ranges", ()))
        return SnapshotState(
            **{
                **body,
                "tables": _texts(body["tables"]),
                "ranges": ranges or ((SnapshotRange(body.get("table", 0), key),) if key else ()),
                "phase": SnapshotPhase(body["phase"]),
                "left_out": _texts(body.get("left_out", ())),
                "beginnings": {str(table): int(n) for table, n in body.get("beginnings", {}).items()},
            }
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not the state of a snapshot: {error}") from error


def _texts(value: Any) -> tuple[str, ...]:
    if not all(isinstance(each, str) for each in value):
        raise TypeError("a list of texts is expected")
    return tuple(value)


def _facts_of(each: SnapshotRange) -> dict[str, Any]:
    return {"table": each.table, "after": each.after, "until": each.until}


def _range(value: Any) -> SnapshotRange:
    return SnapshotRange(int(value["table"]), _texts(value["after"]), _texts(value["until"]))
