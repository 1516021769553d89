"""Writes the text of a statement for a table that has another name or other columns at the target. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.options import table_name
from canal_ha.decode.ddl.statements import (
    AlterTable,
    Change,
    DropColumn,
    DropTables,
    Name,
    RenameColumn,
    RenameTables,
    SetColumn,
    SetPrimaryKey,
    SetUnique,
    SetVisibility,
)
from canal_ha.decode.ddl.tokens import Token, TokenKind, TokenReader, Unreadable, tokenize
from canal_ha.errors import SinkRefused
from canal_ha.pipeline.column_transform import ColumnTransform
from canal_ha.pipeline.statements import effects

Table = tuple[str, str]
Named = Callable[[str], ColumnTransform]
"""Name of a column -> what happens to it"""


def text_for(sql: str, source: Table, target: Table, named: Named, *, merged: bool) -> str:
    """Return a statement that has the effect on the target's table that `sql` has on the source's.

    It is "" if that cannot be told: the columns of the rows that follow tell it then. Items about columns with other
    values are left out, unless they drop or rename the column.

    sql: its text; "" if it is unknown.
    source, target: the names of the table.
    named: returns what happens to a column.
    merged: other tables have the same name at the target, so that no statement about one of them may empty it.
    Raises SinkRefused if a protected column gets a name that is protected less.
    """
    place = ".".join(map(quoted, target))
    unchanged = f"ALTER TABLE {place}"
    mine = [each for each in effects(sql, source[0]) if (each.schema, each.table) == source] if sql else []
    if not mine:
        return unchanged if sql else ""
    effect = mine[-1]
    if effect.emptied:
        verb = "DROP" if effect.readable and isinstance(read(sql), DropTables) else "TRUNCATE"
        return unchanged if merged else f"{verb} TABLE {place}"
    if not effect.readable:
        return ""
    if effect.alter is None:
        return unchanged
    items = _items(sql, named, source)
    return "" if items is None else f"{unchanged} {', '.join(items)}".rstrip()


def _items(sql: str, named: Named, source: Table) -> list[str] | None:
    """Return the items of an ALTER TABLE as they are about the target's columns; None if that cannot be told."""
    made = []
    for tokens in _split(sql):
        item = " ".join(token.text for token in tokens)
        try:
            statement = read(f"ALTER TABLE t {item}")
        except Unreadable:
            return None
        assert isinstance(statement, AlterTable)
        changes = [change for change in statement.changes if any(_is_changed(named(name)) for name in _columns(change))]
        for change in changes:
            _check_exposed(change, named, source)
        if not changes:
            made.append(item)
        elif len(statement.changes) > 1:
            return None
        else:
            made += _rewritten(changes[0], tokens, named)
    return made


def _is_changed(column: ColumnTransform) -> bool:
    return column.changes_values or column.renames


def _rewritten(change: Change, tokens: Sequence[Token], named: Named) -> list[str]:
    """Return the item of a change of one column that has another name or other values at the target."""
    columns = [named(name) for name in _columns(change)]
    if not any(column.changes_values for column in columns):
        return [" ".join(_renamed(token, columns) for token in tokens)]
    old, new = columns[0], columns[-1]
    if old.dropped:
        return []
    if isinstance(change, DropColumn) or new.dropped:
        return [f"DROP COLUMN {quoted(old.name)}"]
    if isinstance(change, (RenameColumn, SetColumn)) and old.name != new.name:
        return [f"RENAME COLUMN {quoted(old.name)} TO {quoted(new.name)}"]
    return []  # its type stays; an added one comes with its first row


def _renamed(token: Token, columns: Sequence[ColumnTransform]) -> str:
    if token.kind in (TokenKind.WORD, TokenKind.QUOTED):
        for column in columns:
            if token.value.lower() == column.source.lower():
                return quoted(column.name)
    return token.text


def _check_exposed(change: Change, named: Named, source: Table) -> None:
    old, *new = _columns(change)
    if isinstance(change, (RenameColumn, SetColumn)) and new and named(old).protection > named(new[0]).protection:
        raise SinkRefused(
            f"canal: a statement gives {'.'.join(source)}.{old} the name {new[0]}, which the transforms protect less:"
            " add that name to them"
        )


def _columns(change: Change) -> Iterator[str]:
    """Yield the columns that a change is about; of a renamed one the old name first."""
    match change:
        case SetColumn(definition, old):
            if old is not None:
                yield old
            yield definition.column.name
        case DropColumn(name) | SetVisibility(name):
            yield name
        case RenameColumn(old, new):
            yield old
            yield new
        case SetPrimaryKey(columns) | SetUnique(columns):
            yield from columns


def renamed_to(sql: str, source: Table) -> list[Table]:
    """Return the names that a statement gives to a table, as far as it can be read."""
    try:
        statement = read(sql)
    except Unreadable:
        return []
    pairs: Iterable[tuple[Name, Name]] = ()
    if isinstance(statement, RenameTables):
        pairs = statement.pairs
    elif isinstance(statement, AlterTable) and statement.renamed is not None:
        pairs = [(statement.name, statement.renamed)]
    names = [source]  # each pair sees the effect of those before it
    for old, new in pairs:
        if (old.schema or source[0], old.table) == names[-1]:
            names.append((new.schema or source[0], new.table))
    return names[1:]


def _split(sql: str) -> list[list[Token]]:
    """Return the items of an ALTER TABLE, which stand behind the table's name with commas between them."""
    reader = TokenReader(tokenize(sql))
    reader.take_settings()
    reader.skip_to("TABLE")
    reader.expect("TABLE")
    reader.take("IF", "EXISTS")
    table_name(reader)
    items: list[list[Token]] = [[]]
    depth = 0
    for token in reader.rest():
        depth += (token.word == "(") - (token.word == ")")
        if token.word == "," and not depth:
            items.append([])
        else:
            items[-1].append(token)
    return [item for item in items if item]


def quoted(name: str) -> str:
    """Return a name in back-quotes."""
    return f"`{name.replace('`', '``')}`"
