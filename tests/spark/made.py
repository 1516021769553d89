"""Batches of given changes, for sinks without Spark."""

from __future__ import annotations

from canal_ha.spark.entries import Layout
from canal_ha.spark.fold import Change
from canal_ha.spark.sinks.batch import Batch


class Made(Batch):
    """A batch of given changes. Segments are numbered as batches are, unless the changes say otherwise."""

    def __init__(self, batch_id: int, *changes: Change) -> None:
        spool = "spool".__add__
        super().__init__(None, batch_id, "run", {}, lambda schema, table: True, spool)  # type: ignore[arg-type]
        self.changes = [change if change.seq else change._replace(seq=batch_id) for change in changes]


def row(
    schema: str, op: str, *texts: str | None, layout: Layout, old: list[str | None] | None = None, seq: int = 0
) -> Change:
    """A row of table t."""
    image = list(texts)
    before = {"insert": None, "update": old or image, "delete": image}[op]
    after = None if op == "delete" else image
    return Change(op, schema, "t", layout.to_json(), before, after, None, "", "d", seq)


def statement(sql: str, schema: str = "s") -> Change:
    """A statement about table t."""
    return Change("ddl", schema, "t", None, None, None, sql, "", "d")
