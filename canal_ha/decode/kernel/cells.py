"""Plans, as the kernel executes them: per column the constant protobuf bytes around a value (specification 1.4).

A Column message is `tag length fixed 0x42 n value suffix`: `fixed` holds index, sqlType, name, isKey, updated and
isNull, `suffix` mysqlType. All of it but the value depends only on the value's length, so the bytes before a value are
kept in a list by that length. A column has one Cell for the before image and one for the after image.
"""

from __future__ import annotations

import canal_ha.decode.kernel.kinds as k
import canal_ha.decode.kernel.primitives as p


class Cell:
    """One column of one image: how to read it, and the bytes around its value."""

    __slots__ = (
        "codec",
        "decimals",
        "fixed",
        "heads",
        "index",
        "json_index",
        "kind",
        "name",
        "null",
        "null_same",
        "precision",
        "size",
        "skip",
        "start",
        "stop",
        "suffix",
        "suffix_size",
        "tag",
        "text",
        "twin",
        "unsigned",
        "wide_fixed",
        "wide_heads",
    )

    def __init__(self, index: int, kind: int, tag: bytes, fixed: bytes, wide_fixed: bytes, suffix: bytes) -> None:
        """tag: of RowData's field; wide_fixed: `fixed` with the sqlType of an unsigned value whose top bit is set."""
        self.index = index
        self.kind = kind
        self.tag = tag
        self.fixed = fixed
        self.wide_fixed = wide_fixed
        self.suffix = suffix
        self.suffix_size = len(suffix)
        self.heads: list[bytes | None] = [None] * k.HEADS
        self.wide_heads: list[bytes | None] = [None] * k.HEADS if wide_fixed else []
        self.null = b""  # the whole Column of a NULL
        self.null_same = b""  # the same with updated = false
        self.name = b""
        self.codec = ""
        self.size = 0
        self.precision = 0
        self.decimals = 0
        self.text = 0
        self.json_index = -1  # among the table's JSON columns, for partial updates
        self.unsigned = False
        self.skip = False  # filtered out: read, not written
        self.twin: Cell | None = None  # of an after image's cell: that of the before image
        # Where a before image's value is in the output; the start may be k.NULL or k.ABSENT.
        self.start = 0
        self.stop = 0


def head(cell: Cell, size: int, wide: bool) -> bytes:
    """The bytes before a value of `size` bytes, fewer than kinds.HEADS; they are kept."""
    text = bytearray()
    p.put_head(text, cell.tag, cell.wide_fixed if wide else cell.fixed, size, cell.suffix_size)
    made = bytes(text)
    if wide:
        cell.wide_heads[size] = made
    else:
        cell.heads[size] = made
    return made


class TablePlan:
    """What to do with the rows of one table id. drop: nothing at all (filtered out).

    before, after: cells in table order, each after cell with its twin; body: the TABLE_MAP event's body, to recognise
    it; names: the header's schema and table fields; change: RowChange's tableId field; head_size: how long the bytes
    before the rows were last time.
    """

    __slots__ = (
        "after",
        "before",
        "body",
        "change",
        "drop",
        "head_size",
        "json_columns",
        "names",
        "width",
    )

    def __init__(self, body: bytes, names: bytes, change: bytes, before: list[Cell], after: list[Cell]) -> None:
        self.body = body
        self.names = names
        self.change = change
        self.before = before
        self.after = after
        self.width = len(before)
        self.drop = False
        self.head_size = 128
        self.json_columns = 0
        for cell, twin in zip(after, before, strict=True):
            cell.twin = twin


def dropped(body: bytes) -> TablePlan:
    """The plan of a table whose rows nobody wants."""
    plan = TablePlan(body, b"", b"", [], [])
    plan.drop = True
    return plan
