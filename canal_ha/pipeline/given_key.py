"""The key that a pipeline's file gives to a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from canal_ha.errors import SinkRefused


def given_key(names: Iterable[str], given: Sequence[str], table: str) -> tuple[str, ...]:
    """Return the names of a given key's columns, which match in any case, as the table spells them.

    names: of the columns that rows have.
    given: the key columns of the pipeline's file.
    table: its name, for messages.
    Raises SinkRefused if a column is missing.
    """
    found = {name.lower(): name for name in names}
    for key in given:
        if key.lower() not in found:
            raise SinkRefused(
                f"canal: {table} has no column {key}, which the pipeline's file names as its key, or the binlog omits"
                " it: correct keys in the pipeline's file, or run SET GLOBAL binlog_row_image = FULL at the source"
            )
    return tuple(found[key.lower()] for key in given)
