"""The keys that a pipeline's file gives to tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from canal_ha.errors import SinkRefused

NO_NAMES: Mapping[str, str] = MappingProxyType({})


KeyNames = Mapping[str, Mapping[str, str]]
"""`schema.table` at the target -> key column of the file -> its name now; "" if it was dropped. All in lower case.

It has only columns whose name is another one than in the file.
"""

NO_KEY_NAMES: KeyNames = MappingProxyType({})


class GivenKeys:
    """The given key columns of a pipeline, with the names that statements give them.

    The file has one name of a column, and rows before a rename have another one than those behind it.
    """

    def __init__(self, keys: Mapping[str, Sequence[str]]) -> None:
        """Begin without other names. keys: the names in the file, by `schema.table` at the target."""
        self._keys = {table: tuple(key.lower() for key in given) for table, given in keys.items()}
        self._before = NO_KEY_NAMES
        self._now: dict[str, dict[str, str]] = {}
        self._others: dict[str, dict[str, str]] = {}

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._keys)

    def begin(self, names: KeyNames) -> None:
        """Take over the names at the beginning of a portion. Columns that the file does not name do not count."""
        self._before = names
        self.begin_again()

    def begin_again(self) -> None:
        """Go back to the beginning of the portion: its statements come again."""
        self._now = {}
        for table, given in self._keys.items():
            moved = {key: name for key, name in self._before.get(table, {}).items() if key in given}
            if moved:
                self._now[table] = moved
        self._others = {table: {name: key for key, name in moved.items() if name} for table, moved in self._now.items()}

    @property
    def names(self) -> KeyNames:
        """The names behind the statements so far."""
        return {table: dict(moved) for table, moved in self._now.items() if moved}

    def others(self, table: str) -> Mapping[str, str]:
        """Return the other names of a table's key columns, in lower case, with the name in the file, too."""
        return self._others.get(table, NO_NAMES)

    def alter(
        self, table: str, dropped: Iterable[str], renamed: Iterable[tuple[str, str]], added: Iterable[str]
    ) -> None:
        """Note what one statement does to a table's columns. Rows of both sides may come.

        table: its name at the target, as the names of columns are.
        dropped, added: names of columns.
        renamed: old and new names.
        Raises SinkRefused if another column gets a name that the key has in rows before or behind the statement.
        """
        given = self._keys.get(table, ())
        if not given:
            return
        before = {key: self._now.get(table, {}).get(key, key) for key in given}
        gone = {name.lower() for name in dropped}
        moves = [(old.lower(), new.lower()) for old, new in renamed]
        now = {key: dict(moves).get(name, "" if name in gone else name) for key, name in before.items()}
        others = dict(self.others(table))
        others |= {now[key]: key for key in given if now[key] not in ("", key)}
        own = set(before.values())
        taken = [(old, new) for old, new in moves if old not in own] + [("", name.lower()) for name in added]
        for old, name in taken:
            key = name if name in given else others.get(name)
            if key is None:
                continue
            if now[key] == before[key] == name:  # the file has the new name already
                others |= {old: key} if old else {}
            elif now[key] != key:
                raise _taken(table, key, name, now[key])
        self._others[table] = others
        self._now[table] = {key: name for key, name in now.items() if name != key}


def given_key(
    names: Iterable[str], given: Sequence[str], table: str, others: Mapping[str, str] = NO_NAMES
) -> tuple[str, ...]:
    """Return the names of a given key's columns, which match in any case, as the table spells them.

    names: of the columns that rows have.
    given: the key columns of the pipeline's file.
    table: its name, for messages.
    others: other names of these columns; see GivenKeys.
    Raises SinkRefused if a column is missing.
    """
    own = list(names)
    places = places_by_key(own, others)
    for key in given:
        if key.lower() not in places:
            raise SinkRefused(
                f"canal: {table} has no column {key}, which the pipeline's file names as its key, or the binlog omits"
                f" it: the rows have {', '.join(own)}. Write the name that the column has there under keys in the"
                " pipeline's file, also if a statement has renamed it, or run SET GLOBAL binlog_row_image = FULL at the"
                " source"
            )
    return tuple(own[places[key.lower()]] for key in given)


def places_by_key(names: Sequence[str], others: Mapping[str, str]) -> dict[str, int]:
    """Return the place of each column by its name in the pipeline's file, in lower case.

    A column that has the name itself comes before one that had it, or gets it, by a statement.

    names: of the columns that rows have.
    others: see GivenKeys.
    """
    lowered = [name.lower() for name in names]
    renamed = {others[name].lower(): place for place, name in enumerate(lowered) if name in others}
    return renamed | {name: place for place, name in enumerate(lowered)}


def _taken(table: str, key: str, name: str, now: str) -> SinkRefused:
    """Return the error for a column that gets a name of the key. now: the key column's name; "" if it was dropped."""
    what = f"is named {now} now: write that" if now else "was dropped: write the name of another key"
    return SinkRefused(
        f"canal: the pipeline's file calls a key column of {table} {key}. A statement gives the name {name} to another"
        f" column. The key column {what} under keys in the file, and start the pipeline again. If it stops here again,"
        " or if the statement gives the table another key, read the table again into an empty copy, and begin after the"
        " statement"
    )
