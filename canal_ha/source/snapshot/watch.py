"""StatementWatch: looks for statements that put other rows under the name of a table of an unfinished snapshot.

It does so in every phase, because a snapshot that is paused or has failed may go on later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment, Source
from canal_ha.source.snapshot.junction import Junction
from canal_ha.source.snapshot.marker import ending, marker
from canal_ha.source.snapshot.progress import SnapshotProgress
from canal_ha.source.snapshot.statements import may_name, refills, replaces
from canal_ha.source.snapshot.transaction import BEFORE


class StatementWatch:
    """See the module. Its function is called on the feed's thread."""

    def __init__(
        self, progress: SnapshotProgress, junction: Junction, begins_again: Callable[[Sequence[str]], None]
    ) -> None:
        """Make a watch.

        progress: of the snapshot.
        junction: where the stream passes.
        begins_again: called with tables that are to be read again from their first row, because they hold other rows.
        """
        self._progress = progress
        self._junction = junction
        self._begins_again = begins_again

    def altering(self, default_schema: str, sql: str) -> None:
        """Begin tables again that hold other rows, or other keys, by a statement that the stream is about to pass on.

        These rows do not come from the stream, nor do new values of a column. What is read from now on is as it is
        behind the statement. The client stores the new state before the statement: later it could end between the two.
        """

        def replaced(table: str, key: Collection[str] | None) -> bool:
            schema, _, name = table.partition(".")
            return replaces(sql, default_schema, schema=schema, table=name, key=key)

        def refilled(table: str) -> bool:
            schema, _, name = table.partition(".")
            return refills(sql, default_schema, schema=schema, table=name)

        tables = self._progress.begin_tables_again(partial(may_name, sql), replaced, refilled)
        if tables is not None:
            self._junction.ahead(self._state_ahead)
        if tables:
            self._begins_again(tables)

    def _state_ahead(self, at: LogPosition, source: Source) -> Segment | None:
        """Return a segment that carries the present state. at: where the stream is."""
        state = self._progress.state
        if state.over:
            return None
        place = replace(at, consumed=False, sub_index=at.sub_index + 1 if at.consumed else BEFORE)
        return ending(marker(place, source), at, state)
