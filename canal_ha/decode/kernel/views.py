"""What the row loop reads of plans and cells. Interpreted, that is the plans and cells themselves.

A compiled build makes C structs of them, which need neither reference counts nor the interpreter's lock; they live in
their plans and cells, and point into bytes that these keep. What is changed of a plan shows in the next view of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import canal_ha.decode.kernel.cells as c

_NONE = c.TablePlan(b"", b"", b"", [], [])


def view(plan: c.TablePlan) -> c.TablePlan:
    """Of a plan that is complete. It lives as long as the plan."""
    return plan


def nothing() -> c.TablePlan:
    """Of no plan: its table id is -1."""
    return _NONE


def places(room: bytearray, count: int) -> list[c.TablePlan]:
    """Of so many plans, at first `nothing`. room: memory for them, nobody else's."""
    return [_NONE] * count


def cell(view: c.Cell) -> c.Cell:
    """What a view of a cell shows."""
    return view


def present(cells: Sequence[c.Cell], src: bytes, at: int, width: int, room: bytearray) -> Sequence[c.Cell]:
    """The cells whose bits are set in a column bitmap. room: memory for them, nobody else's."""
    return [cell for cell in cells if src[at + (cell.index >> 3)] >> (cell.index & 7) & 1]
