"""Rows with the columns, and the bytes around their values, of earlier rows: most rows of a table.

A RowShape is what such rows have in common, made after rows were read by layouts.Images. It needs no objects for the
columns of a row. It declines other rows, which Images reads.
"""

from __future__ import annotations

from array import array

import canal_ha.decode.kernel.codes as k
import canal_ha.decode.kernel.columns as c
import canal_ha.decode.kernel.layouts as ly
import canal_ha.decode.kernel.primitives as p
import canal_ha.decode.kernel.repeats as r

_BEFORE = 0x0A  # the fields of RowData
_AFTER = 0x12


class RowShape:
    """Rows with the layouts that `images` has now, for one kind of change.

    plan: for each column of the layout that counts a Target; None leaves it out. Raises ValueError for more of them.
    An update of the key is declined.
    refused: the column of the layout whose value did not fit its Target; -1 for none.
    """

    __slots__ = ("_kept", "_room", "_targets", "_width", "after", "before", "first", "learned", "refused")

    def __init__(self, images: ly.Images, event: int, plan: list[c.Target | None]) -> None:
        before = images.before.columns
        after = images.after.columns
        self.before = images.before
        self.after = images.after
        self.learned = images.learned
        self.refused = -1
        self.first = 0 if event == k.EVENT_DELETE else len(before)  # the column for the first Target
        self._width = len(before) + len(after)
        self._targets: list[c.Target | None] = [None] * self._width
        self._targets[self.first : self.first + len(plan)] = plan
        if len(self._targets) != self._width:  # `begin` would write behind `_room`
            raise ValueError("more targets than columns")
        twins = [-1] * self._width
        if event == k.EVENT_UPDATE and images.before.names is images.after.names:
            for place in images.after.keys:
                twins[len(before) + place] = place
        columns = before + after
        self._kept = [list(column.variants) for column in columns]
        self._room = bytearray()
        r.prepare(self._room, columns, self._targets, twins, [_BEFORE] * len(before) + [_AFTER] * len(after))

    def put(self, src: bytes, rows: array[int], row: int, count: int) -> int:
        """Put rows until one is declined or refused; return how many.

        rows: start and stop of each RowData in turn.
        row, count: the first row, and the number of all.
        Raises Broken.
        """
        room = self._room
        width = self._width
        targets = self._targets
        first = row
        r.begin(room, targets)
        while row < count and r.match(room, width, src, p.item(rows, 2 * row), p.item(rows, 2 * row + 1)):
            place = r.put_from(room, width, 0)
            while place < width:
                target = targets[place]
                assert target is not None
                if not r.put_one(room, place, src, target):
                    self.refused = place - self.first
                    return row - first
                place = r.put_from(room, width, place + 1)
            row += 1
        return row - first
