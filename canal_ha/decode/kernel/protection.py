"""Reads the value of a protected column, and replaces it.

The row loop is another module, because C compilers inline a method into its callers only if it has few in its module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import canal_ha.decode.kernel.cells as c
import canal_ha.decode.kernel.primitives as p
import canal_ha.decode.kernel.views as views

if TYPE_CHECKING:
    import canal_ha.decode.kernel.rows as rows

_TEXT_KEPT = 1 << 20  # bytes: memory of a longer value is freed


def protected(writer: rows.RowWriter, cell: c.Cell, src: bytes) -> bytes:
    """Return what stands for the protected value at the writer's place, and skip the value. Raises Broken.

    writer: `pos` is the value's start.
    cell: of the protected column.
    src: holds the event.
    """
    assert cell.protect is not None
    clear = views.clear(cell)
    p.truncate(writer.clear, 0)
    try:
        size = writer.put_cell(clear, src, writer.stop, writer.clear)
    except p.Broken:
        raise p.Broken("a value of a protected column cannot be read") from None  # the reason can tell the value
    end = len(writer.clear) - clear.suffix_size
    text = bytes(writer.clear[end - size : end])
    if size > _TEXT_KEPT:
        writer.clear = bytearray()
    return cell.protect(text)
