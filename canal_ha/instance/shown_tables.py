"""The tables of a source as an account may see them. The functions ask the source and match lists: they block."""

from __future__ import annotations

from collections.abc import Sequence

from canal_ha.decode.filters import TableFilter
from canal_ha.decode.privacy import Privacy
from canal_ha.errors import NotAllowed
from canal_ha.instance.origin import Origin
from canal_ha.model.excerpt import excerpt
from canal_ha.model.privacy import Within


def shown_tables(origin: Origin, within: Within) -> Sequence[tuple[str, str]]:
    """Return schema and name of the tables. Raises FilterInvalid, and what Origin.tables raises."""
    shown = TableFilter(within.filter, "")
    return [(schema, table) for schema, table in origin.tables() if shown.accepts(schema, table)]


def shown_definition(origin: Origin, within: Within, schema: str, table: str) -> str | None:
    """Return the definition of a table; None if there is none, or the account's filter does not accept it.

    Raises NotAllowed if the account has rules for its columns: partitions, defaults and checks tell values. Raises
    FilterInvalid, and what Origin.definition raises.
    """
    if not TableFilter(within.filter, "").accepts(schema, table):
        return None
    if Privacy([within.privacy], "unused").columns_of(schema, table):
        raise NotAllowed(
            f"the account may not see all columns of {excerpt(schema)}.{excerpt(table)}, and its definition could tell"
            " values of the others: ask with an account that has no rules of privacy for this table"
        )
    return origin.definition(schema, table)
