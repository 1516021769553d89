"""Decides which databases of MySQL, or schemas of PostgreSQL, a target may write. Pure.

The name of a schema comes from the source: with `database = "{schema}"` and `tables = ["*"]`, CREATE DATABASE at the
source would choose a database of the target.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from canal_ha.errors import OptionInvalid, SinkRefused
from canal_ha.pipeline.description import Description

SCHEMA = "{schema}"
_SYSTEM = {
    "database": re.compile(r"(?i)mysql|sys|information_schema|performance_schema"),
    "schema": re.compile(r"(?is)pg_.*|information_schema"),
}
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


def refusal(database: str, allowed: Sequence[str], state_database: str, noun: str = "database") -> str:
    """Return why no copy may be in a database, as a relative clause; "" if it may.

    database: its name.
    allowed: globs of the databases that the sink may write.
    state_database: holds the pipelines' own state.
    noun: database of MySQL, or schema of PostgreSQL.
    """
    if _SYSTEM[noun].fullmatch(database):
        return "which belongs to the server"
    if database.lower() == state_database.lower():
        return f"which is state{noun.capitalize()}: it holds the pipeline's own state"
    if not any(fnmatchcase(database, pattern) for pattern in allowed):
        return f"which is not among the {noun}s of the sink ({', '.join(allowed)})"
    return ""


@dataclass(frozen=True, slots=True)
class CopyPlaces:
    """Where copies are.

    noun: database or schema, as the target calls it and its options do.
    name: of the place; `{schema}` is replaced by the source's schema.
    allowed: globs of the places that may be written.
    state: the place of the pipelines' own state.
    """

    noun: str
    name: str
    allowed: tuple[str, ...]
    state: str

    @property
    def named(self) -> tuple[str, ...]:
        """The places that the pipeline's file names without wildcards."""
        if SCHEMA not in self.name:
            return (self.name,)
        return tuple(each for each in self.allowed if not glob.has_magic(each))

    def place(self, schema: str, table: str) -> str:
        """Return the place of a table's copy. schema, table: of the source. Raises SinkRefused."""
        name = self.name.replace(SCHEMA, schema)
        why = refusal(name, self.allowed, self.state, self.noun)
        if why:
            raise SinkRefused(
                f"canal: {schema}.{table} of the source would go into the {self.noun} {name!r}, {why}; list the tables"
                f" to copy under tables, choose another {self.noun}, such as 'copy_{SCHEMA}', or list what the target"
                f" may write under {self.noun}s"
            )
        return name


def copy_places(description: Description, noun: str) -> CopyPlaces:
    """Return the places of a pipeline's target.

    noun: database or schema, see CopyPlaces; the options are NOUN, NOUNs and stateNOUN.
    Raises OptionInvalid for a mode without copies, if the source would choose the places, or if a place cannot have
    copies.
    """
    target, options = description.target, description.target.options
    where = f"{description.file}: target {target.kind}"
    if target.mode == "events":
        raise OptionInvalid(f"{where}: mode = {target.mode!r}: expected mirror, scd2 or changelog")
    name = options.get(noun, SCHEMA)
    allowed = tuple(options.get(f"{noun}s", ())) or named_databases(name, description.tables)
    if allowed is None:
        raise OptionInvalid(
            f"{where}: the source would choose the {noun}s of the copies, because a pattern under tables names no"
            f' schema; list them, as {noun}s: [shop], or set {noun}: "copy_{SCHEMA}"'
        )
    made = CopyPlaces(noun, name, allowed, options.get(f"state{noun.capitalize()}", "canal_ha"))
    if SCHEMA not in name:
        try:
            made.place("", "")
        except SinkRefused as error:
            raise OptionInvalid(f"{where}: {noun}: {str(error).partition(' would go into ')[2]}") from error
    return made
