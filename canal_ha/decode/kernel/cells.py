"""Plans as the kernel executes them: the constant protobuf bytes around each column's value (docs/protocol.md#rows).

A Column message is `tag length fixed 0x42 n value suffix`: `fixed` holds index, sqlType, name, isKey, updated and
isNull; `suffix` holds mysqlType. A column has one Cell for the before image and one for the after image. A compiled
build makes views of cells and plans, which it reads without the interpreter's lock: see views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Cell:
    """One column of one image: how to read it, and the bytes around its value."""

    __slots__ = (
        "clear",
        "codec",
        "column_start",
        "column_stop",
        "decimals",
        "fixed",
        "index",
        "json_index",
        "kind",
        "name",
        "null",
        "null_same",
        "precision",
        "protect",
        "size",
        "skip",
        "source_size",
        "source_start",
        "start",
        "stop",
        "suffix",
        "suffix_size",
        "tag",
        "text",
        "twin",
        "unsigned",
        "wide_fixed",
    )

    twin: Cell  # of an after image's cell, once it is in a plan: the before image's cell

    def __init__(self, index: int, kind: int, tag: bytes, fixed: bytes, wide_fixed: bytes, suffix: bytes) -> None:
        """tag: of RowData's field; wide_fixed: `fixed` with the sqlType of an unsigned value whose top bit is set."""
        self.index = index
        self.kind = kind
        self.tag = tag[0]
        self.fixed = fixed
        self.wide_fixed = wide_fixed
        self.suffix = suffix
        self.suffix_size = len(suffix)
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
        self.clear: Cell | None = None  # of a hashed or masked cell: how to read the value
        self.protect: Callable[[bytes], bytes] | None = None  # and what it is delivered as, both UTF-8
        # Where a before image's value is in the output (the start may be k.NULL or k.ABSENT), and, for a value, where
        # its whole Column is and which bytes of the event it was made of.
        self.start = 0
        self.stop = 0
        self.column_start = 0
        self.column_stop = 0
        self.source_start = 0
        self.source_size = 0


class TablePlan:
    """What to do with the rows of one table id.

    drop: write nothing, because the table is filtered out.
    before, after: cells in table order, each after cell with its twin.
    body: the TABLE_MAP event's body, to recognise it.
    names: the header's schema and table fields.
    change: RowChange's tableId field.
    head_size: length of the bytes before the rows in the last event.
    doubts: how often the stream had doubted its plans when this one was set.
    """

    __slots__ = (
        "after",
        "before",
        "body",
        "change",
        "doubts",
        "drop",
        "head_size",
        "json_columns",
        "names",
        "table_id",
        "width",
    )

    def __init__(self, body: bytes, names: bytes, change: bytes, before: Sequence[Cell], after: Sequence[Cell]) -> None:
        self.body = body
        self.names = names
        self.change = change
        self.before: Sequence[Cell] = tuple(before)
        self.after: Sequence[Cell] = tuple(after)
        self.width = len(before)
        self.table_id = -1  # the id that the plan is registered for
        self.doubts = 0
        self.drop = False
        self.head_size = 128
        self.json_columns = 0
        for cell, twin in zip(after, before, strict=True):
            cell.twin = twin
            if cell.clear is not None:
                cell.clear.twin = twin


def dropped(body: bytes) -> TablePlan:
    """Return the plan of a table whose rows are filtered out."""
    plan = TablePlan(body, b"", b"", [], [])
    plan.drop = True
    return plan
