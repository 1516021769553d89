"""Decides which databases the MySQL sink may write. Pure.

The name of a schema comes from the source: with `database = "{schema}"` and `tables = ["*"]`, CREATE DATABASE at the
source would choose a database of the target.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

SCHEMA = "{schema}"
_SYSTEM = frozenset({"mysql", "sys", "information_schema", "performance_schema"})
_WILDCARD = re.compile(r"\*|\?|\[[^]]*\]")


def named_databases(database: str, tables: Sequence[str]) -> tuple[str, ...] | None:
    """Return globs of the databases that a pipeline names; None if a pattern leaves the whole name to the source.

    database: the sink's option.
    tables: the pipeline's patterns of `schema.table`.
    """
    literals = database.split(SCHEMA)
    schemas = [table.partition(".")[0] for table in tables] if len(literals) > 1 else [""]
    if not any(literals) and not all(_WILDCARD.sub("", schema) for schema in schemas):
        return None
    return tuple(dict.fromkeys(schema.join(map(glob.escape, literals)) for schema in schemas))


def refusal(database: str, allowed: Sequence[str], state_database: str) -> str:
    """Return why no copy may be in a database, as a relative clause; "" if it may.

    database: its name.
    allowed: globs of the databases that the sink may write.
    state_database: holds the pipelines' own state.
    """
    if database.lower() in _SYSTEM:
        return "which belongs to the server"
    if database.lower() == state_database.lower():
        return "which is stateDatabase: it holds the pipeline's own state"
    if not any(fnmatchcase(database, pattern) for pattern in allowed):
        return f"which is not among the databases of the sink ({', '.join(allowed)})"
    return ""
