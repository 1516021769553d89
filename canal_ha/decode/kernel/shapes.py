"""Rows with the columns, and the bytes around their values, of earlier rows: most rows of a table.

A RowShape is what such rows have in common, made after rows were read by layouts.Images. It needs no objects for the
columns of a row. It declines other rows, which Images reads.
"""

from __future__ import annotations

from array import array

import canal_ha.decode.kernel.codes as k
import canal_ha.decode.kernel.columns as c
import canal_ha.decode.kernel.layouts as ly
import canal_ha.decode.kernel.repeats as r

_BEFORE = 0x0A  # the fields of RowData
_AFTER = 0x12


class RowShape:
    """Rows with the layouts that `images` has now, for one kind of change.

    plan: for each column of the layout that counts a Target; None leaves it out. Raises ValueError for more of them.
    An update of the key is declined.
    refused: the column of the layout whose value did not fit its Target; -1 for none.
    """

    __slots__ = ("_kept", "_room", "_targets", "after", "before", "first", "learned", "refused")

    def __init__(self, images: ly.Images, event: int, plan: list[c.Target | None]) -> None:
        before = images.before.columns
        after = images.after.columns
        self.before = images.before
        self.after = images.after
        self.learned = images.learned
        self.refused = -1
        self.first = 0 if event == k.EVENT_DELETE else len(before)  # the column for the first Target
        width = len(before) + len(after)
        self._targets: list[c.Target | None] = [None] * width
        self._targets[self.first : self.first + len(plan)] = plan
        if len(self._targets) != width:  # they would be written behind `_room`
            raise ValueError("more targets than columns")
        twins = [-1] * width
        if event == k.EVENT_UPDATE and images.before.names is images.after.names:
            for place in images.after.keys:
                twins[len(before) + place] = place
        columns = before + after
        self._kept: list[object] = [list(column.variants) for column in columns]
        self._kept += [(one.data, one.offsets, one.validity) for one in plan if one is not None]
        self._room = bytearray()
        r.prepare(self._room, columns, self._targets, twins, [_BEFORE] * len(before) + [_AFTER] * len(after))

    def put(self, src: bytes, rows: array[int], row: int, count: int) -> int:
        """Put rows until one is declined or refused; return how many.

        rows: start and stop of each RowData in turn.
        row, count: the first row, and the number of all.
        Raises Broken.
        """
        room = self._room
        targets = self._targets
        first = row
        row, index = r.put_rows(room, 0, src, rows, row, count)
        while index >= 0:
            target = targets[index]
            assert target is not None
            if not r.put_one(room, index, src, target):
                self.refused = index - self.first
                break
            row, index = r.put_rows(room, index + 1, src, rows, row, count)
        return row - first
