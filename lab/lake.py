"""Rows of a Delta table, for programs that end after they have read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder


def rows(table: Path, columns: str = "*", *, version: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table; none if there is no table yet.

    DeltaTable.to_pyarrow_table() is no alternative: its threads call back into Python, and can abort the process while
    it ends.

    table: the table's directory.
    columns: the columns to select, in SQL.
    version: the version of the table; None for the newest.
    """
    if not DeltaTable.is_deltatable(str(table)):
        return []
    query = QueryBuilder().register("lake", DeltaTable(table, version=version))
    found: list[dict[str, Any]] = pa.table(query.execute(f"SELECT {columns} FROM lake")).to_pylist()
    return found
