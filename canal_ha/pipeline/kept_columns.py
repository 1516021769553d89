"""Tells how the columns of a copy are renamed, and of a history, which keeps columns that the source has dropped. Pure.

All items of an ALTER TABLE name the columns as they were before it. So its drops come first, then its renames at once:
`RENAME COLUMN a TO b, RENAME COLUMN b TO a` swaps two names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from canal_ha.decode.ddl.statements import AlterTable, DropColumn, RenameColumn, SetColumn

_CHARACTERS = 56  # of a name that gets an ending: MySQL's names have 64


def new_names(
    names: Iterable[str], renames: Iterable[tuple[str, str]], named: Callable[[str], str] = str
) -> list[tuple[str, str]]:
    """Return the renames of one statement as old and new names that can be carried out one after the other.

    A column whose name another one gets is put aside first: as NAME_old, NAME_old2 and so on, the first that is free.

    names: of the history's columns.
    renames: old and new name of each column that the statement renames; those that the history lacks do not count.
    named: returns the history's name for a column.
    """
    known = {name.lower(): name for name in names}
    wanted = [(old.lower(), new) for old, new in renames if old.lower() in known]
    now = {old: known[old] for old, _ in wanted}
    found: list[tuple[str, str]] = []

    def rename(own: str, new: str) -> None:
        del known[own.lower()]
        known[new.lower()] = new
        found.append((own, new))

    for old, new in wanted:
        if now[old] == new:
            continue
        other = known.get(new.lower(), now[old])
        if other != now[old]:
            aside = next(name for name in asides(other, named) if name.lower() not in known)
            rename(other, aside)
            now = {each: aside if own == other else own for each, own in now.items()}
        rename(now[old], new)
        now[old] = new
    return found


def possible(names: Iterable[str], renames: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the renames whose new names are free, or get free by others. names, renames: as of new_names."""
    known = {name.lower() for name in names}
    found = [(old, new) for old, new in renames if old.lower() in known]
    while True:
        taken = known - {old.lower() for old, _ in found}
        left = [(old, new) for old, new in found if new.lower() not in taken]
        if len(left) == len(found):
            return found
        found = left


def asides(name: str, named: Callable[[str], str] = str) -> Iterator[str]:
    """Yield the names that a column may get when it is put aside. named: as of new_names."""
    number = 1
    while True:
        yield named(f"{name[:_CHARACTERS]}_old{number if number > 1 else ''}")
        number += 1


def drops_of(alter: AlterTable) -> list[str]:
    """Return the names of the columns that a statement drops."""
    return [change.name for change in alter.changes if isinstance(change, DropColumn)]


def adds_of(alter: AlterTable) -> list[str]:
    """Return the names of the columns that a statement adds."""
    return [
        change.definition.column.name
        for change in alter.changes
        if isinstance(change, SetColumn) and change.old is None
    ]


def renames_of(alter: AlterTable) -> list[tuple[str, str]]:
    """Return old and new name of each column that a statement renames."""
    found = []
    for change in alter.changes:
        match change:
            case RenameColumn(old, new):
                found.append((old, new))
            case SetColumn(definition, old) if old is not None:
                found.append((old, definition.column.name))
            case _:
                pass
    return found
