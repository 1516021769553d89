"""Which columns a reader may not see in clear, as text. decode.privacy reads it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnRules:
    r"""Lists as `schema\.table:column/column,...`, with a regular expression for the table.

    drop: columns to leave out.
    hash: columns to replace by a keyed hash.
    mask: columns to replace by a fixed text.
    """

    drop: str = ""
    hash: str = ""
    mask: str = ""


NO_RULES = ColumnRules()


@dataclass(frozen=True, slots=True)
class Within:
    """The most that an account may read. It travels with a request and is not stored.

    filter: the widest table filter; "": any.
    privacy: columns to protect, besides those of the destination.
    """

    filter: str = ""
    privacy: ColumnRules = NO_RULES


ANYTHING = Within()
