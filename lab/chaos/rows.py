"""Rows that say themselves which columns and values they must have.

The column `form` holds the names of all columns of the table when the row was written. Columns c1, c2 and so on, which
DDL adds and drops, hold a number that follows from the row's id. All are of type INT, so a row that is decoded with
another definition of the table has wrong values, but no wrong types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIXED = ("id", "txn", "nth", "size", "form", "pad")
_MODULUS = 1_000_003


def value(number: int, column: str) -> int:
    """Return what an added column holds in the row with this id."""
    return (number * 31 + int(column[1:]) * 7919) % _MODULUS


def letter(number: int) -> str:
    """Return the letter that fills `pad` in the row with this id."""
    return chr(ord("a") + number % 26)


def flaw(row: Mapping[str, Any]) -> str:
    """Return what is wrong with a delivered row; "" if nothing is. Numbers may be texts, as from the Java client."""
    names = list(row)
    if names != str(row.get("form", "")).split(","):
        return f"columns {names}, written with {row.get('form')}"
    number = int(row["id"])
    if row["pad"].strip(letter(number)):
        return f"pad holds {row['pad'][:20]!r}, written with {letter(number)!r} only"
    for name in names:
        if name not in FIXED and str(row[name]) != str(value(number, name)):
            return f"{name} is {row[name]}, written as {value(number, name)}"
    return ""
