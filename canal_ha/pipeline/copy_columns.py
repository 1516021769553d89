"""Tells how the columns of a copy follow those of its table. Pure.

A statement says what a batch cannot: that a column has a new name, and what existing rows have in an added one. What a
batch's columns show counts in the end. Names match in any case, as at the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from canal_ha.client.arrow_types import NTZ, UTC, ColumnType, column_type
from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import AlterTable, DropColumn, RenameColumn, SetColumn
from canal_ha.decode.ddl.tokens import Unreadable
from canal_ha.pipeline.added import added_columns
from canal_ha.pipeline.kept_columns import asides, new_names
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
    """A column to rename."""

    old: str
    name: str


@dataclass(frozen=True, slots=True)
class NewType:
    """A column that may have another type now. default: as of NewColumn, if the column is new; else None."""

    name: str
    kind: ColumnType
    default: str | None = None


@dataclass(frozen=True, slots=True)
class NoColumn:
    """A column to drop."""

    name: str


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
) -> list[Step]:
    """Return what a copy has to do, in order.

    A step that is done is not found again, so the same changes may come again after a crash.

    names: of the copy's columns.
    statements: about the table, in order.
    fields: of new rows behind the statements; None without rows.
    named: returns the copy's name for a column.
    """
    return _steps(names, statements, fields, named, keeps=False)


def history_steps(
    names: Iterable[str],
    statements: Sequence[str],
    fields: Iterable[pa.Field] | None,
    named: Callable[[str], str] = str,
) -> list[Step]:
    """Return what a history has to do: as `steps`, but columns stay, because older versions have values in them.

    If a column gets the name of one that stays, that one gets another name (kept_columns.py).
    """
    found = _steps(names, statements, fields, named, keeps=True)
    return [step for step in found if not isinstance(step, LackingColumn)]


def renamed(rows: Iterable[str], names: Iterable[str], later: Iterable[str]) -> dict[str, str]:
    """Return the names that columns of rows already have in the copy, because an interrupted commit has renamed them.

    rows: names of the rows' columns.
    names: of the copy's columns.
    later: statements about the table behind the rows, in order.
    """
    now = {name.lower(): name for name in names}
    found = [list(_of_statement(sql, str)) for sql in later]
    done = False  # whether a statement is done; then all before it are
    for at in reversed(range(len(found))):
        dropped = {step.name.lower() for each in found[: at + 1] for step in each if isinstance(step, NoColumn)}
        for step in reversed(found[at]):
            if isinstance(step, NewName):
                done = _undo(step, now, aside=step.name.lower() in dropped) or done
            elif isinstance(step, NewColumn) and done and step.name.lower() not in dropped:
                now.pop(step.name.lower(), None)
    own = {name.lower() for name in rows}
    return {name: now[name] for name in own if name in now and now[name].lower() != name}


def _undo(step: NewName, names: dict[str, str], *, aside: bool) -> bool:
    """Find which columns had the names of a rename before it. Return whether it is done.

    step: the rename.
    names: lower name at that time -> the copy's name now; changes in place.
    aside: whether the rename put a column aside.
    """
    old, new = step.old.lower(), step.name.lower()
    if old in names or new not in names:
        return False
    last = ""
    for name in asides(step.name):
        if name.lower() not in names:
            break
        last = name.lower()
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
    *,
    keeps: bool,
) -> list[Step]:
    """Return the steps of `steps`. keeps: whether the copy keeps columns that the source drops."""
    known = {name.lower(): name for name in names}
    found: list[Step] = []
    for sql in statements:
        own_steps = list(_of_statement(sql, named))
        for step in _kept(known.values(), own_steps, named) if keeps else own_steps:
            if _applies(step, known):
                found.append(step)
                _apply(step, known)
    if fields is None:
        return found
    defaults = {step.name.lower(): step.default for step in found if isinstance(step, NewColumn)}
    own = set()
    for field in fields:
        name, kind = named(field.name), kind_of(field)
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


def _of_statement(sql: str, named: Callable[[str], str]) -> Iterator[Step]:
    try:
        statement = read(sql)
    except Unreadable:
        return
    if not isinstance(statement, AlterTable):
        return
    added = {each.name: each for each in added_columns(sql)}
    for change in statement.changes:
        match change:
            case DropColumn(name):
                yield NoColumn(named(name))
            case RenameColumn(old, new):
                yield NewName(named(old), named(new))
            case SetColumn(definition, old):
                made = definition.column
                name = named(made.name)
                if old is None:
                    yield NewColumn(name, added[made.name].column, added[made.name].default)
                    continue
                if named(old) != name:
                    yield NewName(named(old), name)
                yield NewType(name, _kind(made.mysql_type))


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
