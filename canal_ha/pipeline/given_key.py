"""The keys that a pipeline's file gives to tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from canal_ha.errors import SinkRefused

NO_NAMES: Mapping[str, str] = MappingProxyType({})


class GivenKeys:
    """The given key columns of a pipeline, with the other names that statements give them.

    The file has one name of a column, and rows before a rename have another one than those behind it.
    """

    def __init__(self, keys: Mapping[str, Sequence[str]]) -> None:
        """Begin without other names. keys: the names in the file, by `schema.table` at the target."""
        self._keys = keys
        self._others: dict[str, dict[str, str]] = {}

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._keys)

    def others(self, table: str) -> Mapping[str, str]:
        """Return the other names of a table's key columns, in lower case, with the name in the file."""
        return self._others.get(table, NO_NAMES)

    def rename(self, table: str, old: str, new: str) -> None:
        """Note that a statement renames a column. Rows of both sides may come."""
        known = {key.lower(): key for key in self._keys.get(table, ())} | dict(self.others(table))
        before, after = known.get(old.lower()), known.get(new.lower())
        if (before is None) != (after is None):
            other, key = (new, before) if before is not None else (old, after)
            assert key is not None
            self._others.setdefault(table, {})[other.lower()] = key


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
