"""Tells what statements mean for a snapshot: which tables have to be read again, and which ones may be gone."""

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
    Raises SinkRefused if it may not, and if a changelog would lack rows that a statement made.
    """
    if target.mode == "changelog":
        portion.reader.check_filled(portion.frames)
    if target.mode not in ("mirror", "scd2"):
        return []
    for statement in portion.leaving():
        log.warning("pipeline.copy_keeps_rows", destination=portion.destination, statement=statement)
    tables = portion.refilled(columns=target.evolve == "evolve")
    if tables and not snapshot:
        raise SinkRefused(
            f"canal: {where}: a statement before {portion.progress.last} gave {', '.join(tables)} the rows of another"
            " table, as gh-ost, pt-online-schema-change and a logged CREATE TABLE ... SELECT do, or a column with"
            " values that the server computes. These are not in the binlog. Set `snapshot: initial` under `source`, so"
            " that the pipeline reads such tables again, and start it"
        )
    return tables


def tables_that_may_be_gone(portion: Portion, target: TargetDescription, *, snapshot: bool) -> list[str]:
    """Return the tables, as `schema.table`, that the snapshot of a copy need not read any more if they are gone.

    portion: what to commit.
    target: of the pipeline. Only a copy needs no rows of a table that has another name now, because it gets them under
        that name: see tables_to_read_again.
    snapshot: whether the pipeline may have tables read.
    """
    return portion.emptied() if snapshot and target.mode in ("mirror", "scd2") else []
