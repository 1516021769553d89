"""Tells how the columns of a copy follow those of its table. Pure.

A statement says what a batch cannot: that a column has a new name, and what existing rows have in an added one. What a
batch's columns show counts in the end. Names match in any case, as at the source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from canal_ha.client.arrow_types import NTZ, UTC, ColumnType, column_type
from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import AlterTable, SetColumn
from canal_ha.decode.ddl.tokens import Unreadable
from canal_ha.pipeline.added import added_columns
from canal_ha.pipeline.kept_columns import asides, drops_of, new_names, possible, renames_of
from canal_ha.pipeline.reading import TYPE

_BLOB, _VARCHAR = 2004, 12  # java.sql.Types
_TEMPORAL = frozenset({"date", "datetime", "timestamp"})
_PLAIN = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "bit(1)",
    pa.date32(): "date",
    NTZ: "datetime(6)",
    UTC: "timestamp(6)",
    pa.string(): "longtext",
    pa.binary(): "longblob",
}


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column to add. default: value in existing rows, as canal's text; None for NULL."""

    name: str
    kind: ColumnType
    default: str | None = None


@dataclass(frozen=True, slots=True)
class NewName:
    """A column to rename. statement: number of the one that renames it; -1 without one."""

    old: str
    name: str
    statement: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class NewType:
    """A column that may have another type now. default: as of NewColumn, if the column is new; else None."""

    name: str
    kind: ColumnType
    default: str | None = None


@dataclass(frozen=True, slots=True)
class NoColumn:
    """A column to drop. statement: number of the one that drops it."""

    name: str
    statement: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class LackingColumn:
    """A column of the copy that new rows lack, although no statement dropped it: its values would be lost."""

    name: str


Step = NewColumn | NewName | NewType | NoColumn | LackingColumn


def kind_of(field: pa.Field) -> ColumnType:
    """Return the type of a batch's column: that of the source, unless a transform changed the values."""
    text = (field.metadata or {}).get(TYPE, b"").decode()
    kind = column_type(text, _BLOB if pa.types.is_binary(field.type) else _VARCHAR)
    as_text = pa.types.is_string(field.type) and kind.name in _TEMPORAL
    if text and (kind.arrow == field.type or as_text):
        return kind
    if pa.types.is_decimal(field.type):
        return column_type(f"decimal({field.type.precision},{field.type.scale})", 0)
    return column_type(_PLAIN[field.type], 0)


def steps(
    names: Iterable[str],
    statements: Sequence[str],
    fields: Iterable[pa.Field] | None,
    named: Callable[[str], str] = str,
    done: int = -1,
) -> list[Step]:
    """Return what a copy has to do, in order.

    A step that is done is not found again, so the same changes may come again after a crash. Only names that change
    places would do so again: `done` says how far they are.

    names: of the copy's columns.
    statements: about the table, in order.
    fields: of new rows behind the statements; None without rows.
    named: returns the copy's name for a column.
    done: number of the statement whose drops and renames an interrupted commit has done, and all before it; -1: none.
    """
    return _steps(names, statements, fields, named, done, keeps=False)


def history_steps(
    names: Iterable[str],
    statements: Sequence[str],
    fields: Iterable[pa.Field] | None,
    named: Callable[[str], str] = str,
    done: int = -1,
) -> list[Step]:
    """Return what a history has to do: as `steps`, but columns stay, because older versions have values in them.

    If a column gets the name of one that stays, that one gets another name (kept_columns.py).
    """
    found = _steps(names, statements, fields, named, done, keeps=True)
    return [step for step in found if not isinstance(step, LackingColumn)]


def renamed(rows: Iterable[str], names: Iterable[str], later: Iterable[str], done: int = -1) -> dict[str, str]:
    """Return the names that columns of rows already have in the copy, because an interrupted commit has renamed them.

    rows: names of the rows' columns.
    names: of the copy's columns.
    later: statements about the table behind the rows, in order.
    done: number of the one of them that is known to be done, with all before it; -1: none. Others show in the names.
    """
    now = {name.lower(): name for name in names}
    found = [list(_of_statement(sql, str)) for sql in later]
    is_done = False  # then all statements before it are
    for at in reversed(range(len(found))):
        dropped = {step.name.lower() for each in found[: at + 1] for step in each if isinstance(step, NoColumn)}
        added = {step.name.lower() for step in found[at] if isinstance(step, NewColumn)} - dropped
        renames = [step for step in found[at] if isinstance(step, NewName)]
        is_done = is_done or at <= done
        if is_done:
            now = {lower: name for lower, name in now.items() if lower not in added}
            _undo_all(renames, now, dropped)
        elif not {step.name.lower() for step in renames} & {step.old.lower() for step in renames}:
            for step in reversed(renames):  # names that change places do not tell whether they have done so
                is_done = _undo(step, now, aside=step.name.lower() in dropped) or is_done
            if is_done:
                now = {lower: name for lower, name in now.items() if lower not in added}
    own = {name.lower() for name in rows}
    return {name: now[name] for name in own if name in now and now[name].lower() != name}


def renames_in(sql: str) -> dict[str, str]:
    """Return old and new name of each column that a statement renames, in lower case."""
    return {step.old.lower(): step.name.lower() for step in _of_statement(sql, str) if isinstance(step, NewName)}


def _undo_all(renames: Sequence[NewName], names: dict[str, str], dropped: Collection[str]) -> None:
    """Find which columns had the names of renames before them.

    renames: of one statement, which is done.
    names: lower name behind it -> the copy's name now; changes in place.
    dropped: lower names of the columns that were dropped up to it, which are put aside.
    """
    olds = {step.old.lower() for step in renames}
    before = {step.old.lower(): names.pop(step.name.lower()) for step in renames if step.name.lower() in names}
    for new in {step.name.lower() for step in renames} & set(dropped) - olds:
        aside = _aside(new, names)
        if aside:
            before[new] = names.pop(aside)
    names.update(before)


def _aside(name: str, names: Mapping[str, str]) -> str:
    """Return the lower name of the column that was put aside last; "" if none was."""
    last = ""
    for each in asides(name):
        if each.lower() not in names:
            break
        last = each.lower()
    return last


def _undo(step: NewName, names: dict[str, str], *, aside: bool) -> bool:
    """Find which columns had the names of a rename before it. Return whether it is done.

    step: the rename.
    names: lower name at that time -> the copy's name now; changes in place.
    aside: whether the rename put a column aside.
    """
    old, new = step.old.lower(), step.name.lower()
    if old in names or new not in names:
        return False
    last = _aside(step.name, names)
    if aside and not last:
        return False
    names[old] = names.pop(new)
    if aside:
        names[new] = names.pop(last)
    return True


def describe(step: Step) -> str:
    """Return a step in words."""
    match step:
        case NewColumn(name, kind):
            return f"a new column {name!r} {kind.text}"
        case NewName(old, name):
            return f"{old!r} is named {name!r}"
        case NewType(name, kind):
            return f"{name!r} is {kind.text}"
        case NoColumn(name) | LackingColumn(name):
            return f"no column {name!r}"


def _steps(
    names: Iterable[str],
    statements: Sequence[str],
    fields: Iterable[pa.Field] | None,
    named: Callable[[str], str],
    done: int,
    *,
    keeps: bool,
) -> list[Step]:
    """Return the steps of `steps`. keeps: whether the copy keeps columns that the source drops."""
    known = {name.lower(): name for name in names}
    found: list[Step] = []
    for number, sql in enumerate(statements):
        own_steps = [] if number < done else list(_of_statement(sql, named))
        if number == done:
            own_steps = [step for step in own_steps if not isinstance(step, NewName | NoColumn)]
        for step in (_kept if keeps else _moved)(known.values(), own_steps, named):
            if _applies(step, known):
                found.append(replace(step, statement=number) if isinstance(step, NewName | NoColumn) else step)
                _apply(step, known)
    if fields is None:
        return found
    defaults = {step.name.lower(): step.default for step in found if isinstance(step, NewColumn)}
    own = set()
    for each in fields:
        name, kind = named(each.name), kind_of(each)
        own.add(name.lower())
        before = known.get(name.lower())
        if before is None:
            found.append(NewColumn(name, kind))
            continue
        if before != name:
            found.append(NewName(before, name))
        found.append(NewType(name, kind, defaults.get(name.lower())))
    return [*found, *(LackingColumn(name) for lower, name in known.items() if lower not in own)]


def _kept(names: Iterable[str], found: Sequence[Step], named: Callable[[str], str]) -> list[Step]:
    """Return the steps that a history makes instead of those of a statement. names: of its columns."""
    renames = [(step.old, step.name) for step in found if isinstance(step, NewName)]
    others = [step for step in found if not isinstance(step, NewName | NoColumn)]
    return [*(NewName(old, new) for old, new in new_names(names, renames, named)), *others]


def _moved(names: Iterable[str], found: Sequence[Step], named: Callable[[str], str]) -> list[Step]:
    """Return the steps of a statement of which each can be carried out behind the other. names: of the copy's columns.

    Columns whose names change places get other names in between.
    """
    drops = [step for step in found if isinstance(step, NoColumn)]
    gone = {step.name.lower() for step in drops}
    left = [name for name in names if name.lower() not in gone]
    renames = possible(left, [(step.old, step.name) for step in found if isinstance(step, NewName)])
    others = [step for step in found if not isinstance(step, NewName | NoColumn)]
    return [*drops, *(NewName(old, new) for old, new in new_names(left, renames, named)), *others]


def _of_statement(sql: str, named: Callable[[str], str]) -> Iterator[Step]:
    try:
        statement = read(sql)
    except Unreadable:
        return
    if not isinstance(statement, AlterTable):
        return
    yield from (NoColumn(named(name)) for name in drops_of(statement))
    yield from (NewName(named(old), named(new)) for old, new in renames_of(statement) if named(old) != named(new))
    added = {each.name: each for each in added_columns(sql)}
    for change in statement.changes:
        if isinstance(change, SetColumn):
            made = change.definition.column
            if change.old is None:
                yield NewColumn(named(made.name), added[made.name].column, added[made.name].default)
            else:
                yield NewType(named(made.name), _kind(made.mysql_type))


def _kind(mysql_type: str) -> ColumnType:
    binary = mysql_type.partition("(")[0].lower().endswith(("blob", "binary"))
    return column_type(mysql_type, _BLOB if binary else _VARCHAR)


def _applies(step: Step, known: dict[str, str]) -> bool:
    match step:
        case NewColumn(name):
            return name.lower() not in known
        case NewName(old, name):
            return old.lower() in known and (name.lower() not in known or old.lower() == name.lower())
        case _:
            return step.name.lower() in known


def _apply(step: Step, known: dict[str, str]) -> None:
    if isinstance(step, NewName):
        del known[step.old.lower()]
    if isinstance(step, NoColumn):
        del known[step.name.lower()]
    else:
        known[step.name.lower()] = step.name
