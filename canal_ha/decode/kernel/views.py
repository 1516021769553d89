"""The parts of plans and cells that the row loop reads. Interpreted, these are the plans and cells themselves.

A compiled build makes C structs of them, which need neither reference counts nor the interpreter's lock. They live in
their plans and cells, and point into bytes that these keep. A change of a plan shows in its next view.
"""

from __future__ import annotations

from collections.abc import Sequence

import canal_ha.decode.kernel.cells as c

_NONE = c.TablePlan(b"", b"", b"", [], [])


def view(plan: c.TablePlan) -> c.TablePlan:
    """Return the view of a complete plan. It lives as long as the plan."""
    return plan


def nothing() -> c.TablePlan:
    """Return the view of no plan; its table id is -1."""
    return _NONE


def places(room: bytearray, count: int) -> list[c.TablePlan]:
    """Return views of so many plans, at first `nothing`. room: memory used for nothing else."""
    return [_NONE] * count


def cell(view: c.Cell) -> c.Cell:
    """Return the cell that a view shows."""
    return view


def clear(cell: c.Cell) -> c.Cell:
    """Return the view of the cell that reads the value of a hashed or masked one."""
    assert cell.clear is not None
    return cell.clear


def present(cells: Sequence[c.Cell], src: bytes, at: int, width: int, room: bytearray) -> Sequence[c.Cell]:
    """Return the cells whose bits are set in a column bitmap. room: memory used for nothing else."""
    return [cell for cell in cells if src[at + (cell.index >> 3)] >> (cell.index & 7) & 1]
