"""SQL for delta-rs. In a MERGE, `t` is the table and `s` has the rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def quoted(name: str) -> str:
    """Return a name in quotes."""
    return f"`{name.replace('`', '``')}`"


def same_key(keys: Sequence[str], rows: pa.Table) -> str:
    """Return the condition that `t` and `s` have the same key. NULL equals NULL.

    keys: names of the key's columns.
    rows: the rows of `s`; the condition looks for NULL only in columns that have it there.
    """
    return " AND ".join(_same(key, nullable=rows.column(key).null_count > 0) for key in keys)


def values_of(names: Sequence[str]) -> dict[str, str]:
    """Return columns of `t` with the values that `s` has for them."""
    return {quoted(name): f"s.{quoted(name)}" for name in names}


def _same(key: str, *, nullable: bool) -> str:
    name = quoted(key)
    both_null = f" OR (t.{name} IS NULL AND s.{name} IS NULL)" if nullable else ""
    return f"(t.{name} = s.{name}{both_null})"
