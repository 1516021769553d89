"""Applies ALTER TABLE's changes to a list of columns, in the server's order.

The server first walks the old columns (dropping, redefining and renaming them by their old names, each in its old
place), then adds and moves columns in the statement's order. So `ADD b ..., DROP b` replaces b, and two renames can
swap names.
Source: mysql_prepare_alter_table of MySQL and MariaDB.
"""

from __future__ import annotations

from dataclasses import replace

from canal_ha.decode.charsets import doubted, in_doubt
from canal_ha.decode.ddl.columns import converted, with_default
from canal_ha.decode.ddl.grammar import VERSION_COLUMNS
from canal_ha.decode.ddl.statements import (
    Change,
    ConvertCharset,
    DefaultCharset,
    DropColumn,
    RenameColumn,
    SetColumn,
    SetPrimaryKey,
    SetUnique,
    SetVisibility,
    Versioning,
)
from canal_ha.decode.ddl.tokens import Unreadable
from canal_ha.model.table import Column

Placed = tuple[str | None, Column]  # the old name in lower case (None for a new column), and the new column


def default_charset(columns: tuple[Column, ...], changes: tuple[Change, ...], charset: str) -> str:
    """Return a table's charset after the changes, perhaps in doubt; "" for the schema's.

    columns, charset: of the table before.
    MySQL 5.6 passes over a conversion that changes nothing else, the default of the table included.
    """
    told = [change.charset for change in changes if isinstance(change, DefaultCharset | ConvertCharset)]
    if not told or told[-1] == charset:
        return charset
    alone = all(isinstance(change, ConvertCharset) for change in changes)
    if alone and not any(_surely_converted(column, told[-1]) for column in columns):
        return doubted(told[-1])
    return told[-1]


def _surely_converted(column: Column, charset: str) -> bool:
    known = column.charset and not in_doubt(column.charset)
    return bool(known) and converted(column, charset) != column


def alter(columns: tuple[Column, ...], changes: tuple[Change, ...], charset: str = "") -> tuple[Column, ...]:
    """Return the new columns.

    columns: before the changes.
    changes: of one statement.
    charset: the table's; "" for the schema's.
    Raises Unreadable if the changes do not fit these columns.
    """
    charset = default_charset(columns, changes, charset)
    conversion = next((change for change in changes if isinstance(change, ConvertCharset)), None)
    changes = tuple(_completed(change, charset, conversion) for change in changes)
    versioning = tuple(column for column in columns if column.versioning)  # they stay last
    before = [column for column in columns if not column.versioning]
    placed = _place(before, changes)
    after = _keyed(placed, before, changes)
    own = any(isinstance(change, SetColumn) and change.definition.row_bound for change in changes)
    for change in changes:
        if isinstance(change, Versioning):
            versioning = VERSION_COLUMNS if change.on and not own else ()
    return after + versioning


def _place(before: list[Column], changes: tuple[Change, ...]) -> list[Placed]:
    names = {column.name.lower() for column in before}
    drops = {change.name.lower() for change in changes if isinstance(change, DropColumn)}
    renames = {change.old.lower(): change.new for change in changes if isinstance(change, RenameColumn)}
    sets = {
        change.old.lower(): change for change in changes if isinstance(change, SetColumn) and change.old is not None
    }
    for change in changes:
        old = _touched(change)
        if old is not None and old.lower() not in names and not getattr(change, "lenient", False):
            raise Unreadable(f"column {old!r} is unknown")
    shown = {change.name.lower(): change.invisible for change in changes if isinstance(change, SetVisibility)}
    targets = [change.charset for change in changes if isinstance(change, ConvertCharset)]
    placed: list[Placed] = []
    for column in before:
        name = column.name.lower()
        if name in shown:
            column = replace(column, invisible=shown[name])
        if targets:
            column = converted(column, targets[-1])
        if name in drops:
            continue
        if name in sets:
            placed.append((name, sets[name].definition.column))
        elif name in renames:
            placed.append((name, replace(column, name=renames[name])))
        else:
            placed.append((name, column))
    for change in changes:
        if isinstance(change, SetColumn) and (
            change.old is None or (change.after is not None and change.old.lower() in names)
        ):
            if change.old is None and change.lenient and change.definition.column.name.lower() in names:
                continue
            if change.old is not None:  # until a column moves, others can be placed AFTER it
                old = change.old.lower()
                placed = [each for each in placed if each[0] != old]
            _insert(placed, change)
    return placed


def _completed(change: Change, charset: str, conversion: ConvertCharset | None) -> Change:
    """Return a change with the charset of its column. A conversion covers new columns, and overrules their own."""
    if not isinstance(change, SetColumn):
        return change
    column = with_default(change.definition.column, charset)
    if conversion is not None:
        column = converted(column, conversion.charset)
    return replace(change, definition=replace(change.definition, column=column))


def _touched(change: Change) -> str | None:
    match change:
        case DropColumn(name):
            return name
        case RenameColumn(old):
            return old
        case SetVisibility(name):
            return name
        case SetColumn(old=old):
            return old
    return None


def _insert(placed: list[Placed], change: SetColumn) -> None:
    column = change.definition.column
    if any(other.name.lower() == column.name.lower() for _, other in placed):
        raise Unreadable(f"column {column.name!r} exists already")
    index = len(placed)
    if change.after == "":
        index = 1 if _has_generated_key([column for _, column in placed]) else 0
    elif change.after is not None:
        found = [at for at, (_, other) in enumerate(placed) if other.name.lower() == change.after.lower()]
        if not found:
            raise Unreadable(f"column {change.after!r} is unknown")
        index = found[0] + 1
    placed.insert(index, (change.old.lower() if change.old is not None else None, column))


def _has_generated_key(columns: list[Column]) -> bool:
    """Return whether MySQL takes the first column for a generated invisible primary key, which stays first.

    It asks for this form, however the column was made (seen on MySQL 9.7).
    """
    return (
        [column.name for column in columns if column.key] == ["my_row_id"]
        and columns[0].key
        and columns[0].invisible
        and columns[0].auto_increment
        and columns[0].mysql_type.lower() == "bigint unsigned"
    )


def _keyed(placed: list[Placed], before: list[Column], changes: tuple[Change, ...]) -> tuple[Column, ...]:
    """Set the keys: old ones by old names, unless dropped; then the new ones by new names.

    A new column with the name of a dropped one takes its place in the key; one with the old name of a renamed column
    does not.
    """
    old_key = {column.name.lower() for column in before if column.key}
    old_unique = {column.name.lower() for column in before if column.unique}
    primary: set[str] = set()
    unique: set[str] = set()
    for change in changes:
        if isinstance(change, SetPrimaryKey):
            if not change.columns:
                old_key = set()
            primary.update(map(str.lower, change.columns))
        elif isinstance(change, SetUnique):
            unique.update(map(str.lower, change.columns))
        elif isinstance(change, SetColumn) and change.definition.primary:
            primary.add(change.definition.column.name.lower())
    kept = {old for old, column in placed if old is not None}
    after = []
    for old, column in placed:
        name = column.name.lower()
        origin = old if old is not None else "" if name in kept else name
        key = origin in old_key or name in primary
        marked = column.unique or origin in old_unique or name in unique
        after.append(replace(column, key=key, nullable=column.nullable and not key, unique=marked))
    return tuple(after)
