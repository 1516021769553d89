"""Tells which tables a pipeline includes, and logs those that it leaves out only because of the case of their letters.

The node matches names in any case, so it sends such tables; their changes would be acknowledged, and nobody told.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from canal_ha import logs
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.transform_rules import TABLES_KEPT, Table

log = logs.Spared(logs.get(__name__))  # names are from outside


class Taken:
    """See the module. One thread."""

    def __init__(self, description: Description) -> None:
        """Begin. description: the pipeline."""
        self._description = description
        self._patterns = [pattern.lower() for pattern in description.tables]
        self._known: set[Table] = set()  # tables left out

    def __call__(self, schema: str, table: str) -> bool:
        """Return whether the pipeline includes this table."""
        if self._description.takes(schema, table):
            return True
        left_out = (schema, table)
        if left_out not in self._known:
            if len(self._known) >= TABLES_KEPT:
                self._known.clear()
            self._known.add(left_out)
            name = f"{schema}.{table}"
            if any(fnmatchcase(name.lower(), pattern) for pattern in self._patterns):
                log.warning("pipeline.letter_case", pipeline=self._description.name, left_out=name)
        return False
