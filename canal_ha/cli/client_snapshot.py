"""Tells the user of `canal-ha client --snapshot` if existing rows do not come: the stream goes on without them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import click

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.own_snapshot import failure, has_failed, no_rows, snapshot_of
from canal_ha.errors import CanalError
from canal_ha.model.excerpt import message
from canal_ha.model.snapshot import SnapshotPhase, SnapshotState

FIRST_S, LOOK_S = 1.0, 5.0


class SnapshotWatch:
    """Looks at the client's snapshot again and again.

    failed: whether it had failed at the last look.
    """

    def __init__(
        self, beside: Callable[[], SimpleConnector | None], destination: str, client_id: int, tables: Sequence[str]
    ) -> None:
        """Look at nothing yet.

        beside: returns another connection of the client id, not connected; None without a node.
        destination, client_id: of the client.
        tables: whose existing rows it wants.
        """
        self.failed = False
        self._beside = beside
        self._destination = destination
        self._client_id = client_id
        self._tables = tuple(tables)
        self._begun = self._over = False
        self._look_at = 0.0

    def begin(self) -> None:
        """Tell on standard error if the rows do not come because the client id existed before. It has subscribed."""
        if self._begun:
            return
        self._begun = True
        found = self._state()
        if found and (text := no_rows(self._destination, self._client_id, self._tables, found[0])):
            click.echo(f"canal-ha: {message(text)}", err=True)
        self._look_at = time.monotonic() + FIRST_S

    def look(self, *, last: bool = False) -> None:
        """Tell on standard error if the snapshot has failed since the last look.

        last: look now; else only if it is time.
        """
        if not self._begun or self._over or (not last and time.monotonic() < self._look_at):
            return
        self._look_at = time.monotonic() + LOOK_S
        found = self._state()
        if found is None:
            return
        (state,) = found
        self._over = state is None or state.phase in (SnapshotPhase.DONE, SnapshotPhase.CANCELLED)
        before, self.failed = self.failed, has_failed(state)
        if state is not None and self.failed and not before:
            click.echo(f"canal-ha: {message(str(failure(self._destination, self._client_id, state)))}", err=True)

    def _state(self) -> tuple[SnapshotState | None] | None:
        """Return the state, which may be none; None if nobody tells it: the stream says why, or the next look."""
        try:
            client = self._beside()
            if client is None:
                return None
            with client:
                cursor = client.subscribe("", tell_cursor=True)
        except (CanalError, OSError):
            return None
        return None if cursor is None else (snapshot_of(cursor),)
