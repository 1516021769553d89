"""SQL for delta-rs. In a MERGE, `t` is the table and `s` has the rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def quoted(name: str) -> str:
    """Return a name in quotes."""
    return f"`{name.replace('`', '``')}`"


def same_key(keys: Sequence[str]) -> str:
    """Return the condition that `t` and `s` have the same key. keys: names of its columns, which are never NULL."""
    return " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)


def values_of(names: Sequence[str]) -> dict[str, str]:
    """Return columns of `t` with the values that `s` has for them."""
    return {quoted(name): f"s.{quoted(name)}" for name in names}


def unused(name: str, names: Iterable[str]) -> str:
    """Return a name for a column beside others: this one, or it with underscores behind it."""
    used = {each.lower() for each in names}
    while name.lower() in used:
        name += "_"
    return name
