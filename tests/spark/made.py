"""Micro-batches of given changes, for tests of sinks without Spark."""

from __future__ import annotations

from canal_ha.spark.entries import RowLayout
from canal_ha.spark.fold import ChangeRow
from canal_ha.spark.lineage import Epoch, Lineage, Writer
from canal_ha.spark.manifest import Manifest
from canal_ha.spark.sinks.batch import MicroBatch


class Made(MicroBatch):
    """A micro-batch of given changes. A change without a segment number gets the number of the batch."""

    def __init__(
        self, batch_id: int, *changes: ChangeRow, manifest: Manifest | None = None, fail_on_data_loss: bool = True
    ) -> None:
        super().__init__(
            None,  # type: ignore[arg-type]  # no frame: the changes are given
            batch_id,
            "run",
            {},
            lambda schema, table: True,
            spooled if manifest is None else lambda destination: manifest,
            {},
            fail_on_data_loss=fail_on_data_loss,
        )
        self.changes = [change if change.seq else change._replace(seq=batch_id) for change in changes]


def spooled(destination: str) -> Manifest:
    """Return a spool of one writer that covers any segment."""
    writer = Writer(Epoch(1, "0000000a"), 0, follows=True)
    return Manifest(f"spool{destination}", next_seq=1000, lineage=Lineage((writer,), since=0))


def row(
    schema: str, op: str, *texts: str | None, layout: RowLayout, old: list[str | None] | None = None, seq: int = 0
) -> ChangeRow:
    """Return a row change of table t."""
    image = list(texts)
    before = {"insert": None, "read": None, "update": old or image, "delete": image}[op]
    after = None if op == "delete" else image
    return ChangeRow(op, schema, "t", layout.to_json(), before, after, None, "", "d", seq)


def statement(sql: str, schema: str = "s") -> ChangeRow:
    """Return a statement about table t."""
    return ChangeRow("ddl", schema, "t", None, None, None, sql, "", "d")
