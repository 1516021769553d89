"""Window: what the stream brings while one chunk is read, and so which rows of the chunk are still true. Pure.

The window opens before the chunk's SELECT and closes when the stream has passed the end that the binlog had after it.
A row whose key the stream brought meanwhile is left out: the stream brought its newest value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from canal_ha.errors import CanalError

MOST_KEYS = 1_000_000  # recorded before the chunk's keys are known; a stream so far behind has to catch up first

KeyTexts = tuple[str, ...]


class Window:
    """One chunk's window. One thread at a time may change it.

    altered: a statement changed the table, or another server took over: read the chunk again.
    overflowed: too many keys came before those of the chunk were known: the same.
    unclear: a key that the stream brought may be the one of another row: the same.
    refused: the stream cannot be watched for changes of the table.
    """

    def __init__(self, most: int = MOST_KEYS, shared: Callable[[KeyTexts], bool] = lambda key: False) -> None:
        """Open it.

        most: keys to record before those of the chunk are known.
        shared: whether the texts of a key are those of another key, too.
        """
        self.altered = False
        self.overflowed = False
        self.unclear = False
        self.refused: CanalError | None = None
        self._most = most
        self._shared = shared
        self._changed: set[KeyTexts] = set()
        self._keys: Sequence[KeyTexts] = ()  # of the chunk's rows
        self._rows: frozenset[KeyTexts] | None = None  # the same; None before the SELECT

    @property
    def valid(self) -> bool:
        """Whether the chunk can be used."""
        return not (self.altered or self.overflowed or self.unclear or self.refused)

    @property
    def recorded(self) -> bool:
        """Whether the stream has brought any row of the table, or of the chunk once its keys are known."""
        return bool(self._changed)

    @property
    def narrowed(self) -> bool:
        """Whether the keys of the chunk are known."""
        return self._rows is not None

    def record(self, keys: Iterable[KeyTexts]) -> None:
        """Take the keys of rows that the stream brings, before and after each change."""
        if self._rows is not None:
            self._leave_out(self._rows.intersection(keys))
        elif not self.overflowed:
            self._changed.update(keys)
            if len(self._changed) > self._most:
                self.overflowed = True
                self._changed.clear()

    def read(self, keys: Sequence[KeyTexts]) -> None:
        """Take the keys of the chunk's rows, in the order of the rows."""
        self._keys, self._rows = keys, frozenset(keys)
        changed, self._changed = self._changed & self._rows, set()
        self._leave_out(changed)

    def _leave_out(self, keys: Iterable[KeyTexts]) -> None:
        """Leave rows of the chunk out."""
        for key in keys:
            self._changed.add(key)
            self.unclear = self.unclear or self._shared(key)

    @property
    def left_out(self) -> list[int]:
        """The rows of the chunk that the stream has brought, in order."""
        changed = self._changed
        return [row for row, key in enumerate(self._keys) if key in changed] if changed else []
