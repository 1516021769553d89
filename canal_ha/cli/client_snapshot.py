"""Tells the user of `canal-ha client --snapshot` that the snapshot has failed: its stream goes on without the rows."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.own_snapshot import failure, has_failed, snapshot_of
from canal_ha.errors import CanalError
from canal_ha.model.excerpt import message

LOOK_S = 5.0


class SnapshotWatch:
    """Looks at the client's snapshot again and again.

    failed: whether it had failed at the last look.
    """

    def __init__(self, beside: Callable[[], SimpleConnector | None], destination: str, client_id: int) -> None:
        """Look at nothing yet.

        beside: returns another connection of the client id, not connected; None without a node.
        destination, client_id: of the client.
        """
        self.failed = False
        self._beside = beside
        self._destination = destination
        self._client_id = client_id
        self._look_at = time.monotonic() + LOOK_S

    def look(self, *, last: bool = False) -> None:
        """Tell on standard error if the snapshot has failed since the last look.

        last: look now; else only if it is time.
        """
        if not last and time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_S
        try:
            client = self._beside()
            if client is None:
                return
            with client:
                state = snapshot_of(client.subscribe("", tell_cursor=True))
        except (CanalError, OSError):
            return  # the stream says what is wrong, or the next look
        before, self.failed = self.failed, has_failed(state)
        if state is not None and self.failed and not before:
            click.echo(f"canal-ha: {message(str(failure(self._destination, self._client_id, state)))}", err=True)
