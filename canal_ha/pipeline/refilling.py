"""Tells which tables have to be read again, because a statement gave them rows that the binlog does not have."""

from __future__ import annotations

from canal_ha import logs
from canal_ha.errors import SinkRefused
from canal_ha.pipeline.description import TargetDescription
from canal_ha.pipeline.portion import Portion

log = logs.get(__name__)


def tables_to_read_again(portion: Portion, target: TargetDescription, where: str, *, snapshot: bool) -> list[str]:
    """Return the tables, as `schema.table`, that got rows or values from elsewhere.

    portion: what to commit.
    target: of the pipeline.
    where: the pipeline, for messages.
    snapshot: whether the pipeline may have tables read.
    Raises SinkRefused if it may not.
    """
    if target.mode not in ("mirror", "scd2"):
        return []
    for statement in portion.leaving():
        log.warning("pipeline.copy_keeps_rows", destination=portion.destination, statement=statement)
    tables = portion.refilled(columns=target.evolve == "evolve")
    if tables and not snapshot:
        raise SinkRefused(
            f"canal: {where}: a statement before {portion.progress.last} gave {', '.join(tables)} the rows of another"
            " table, as gh-ost and pt-online-schema-change do, or a column with values that the server computes. These"
            " are not in the binlog. Set `snapshot: initial` under `source`, so that the pipeline reads such tables"
            " again, and start it"
        )
    return tables
