"""The last snapshot of a client, and what a consumer says if it has failed. Pure."""

from __future__ import annotations

from contextlib import suppress
from shlex import quote

from canal_ha.errors import SnapshotRefused
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import SnapshotPhase, SnapshotState


def snapshot_of(cursor: LogPosition | None) -> SnapshotState | None:
    """Return the last snapshot of the client that has this cursor; None if there is none."""
    with suppress(ValueError):
        return SnapshotState.from_text(cursor.snapshot) if cursor is not None else None
    return None


def has_failed(state: SnapshotState | None) -> bool:
    """Return whether a client's last snapshot has failed."""
    return state is not None and state.phase is SnapshotPhase.FAILED


def failure(destination: str, client_id: int, state: SnapshotState) -> SnapshotRefused:
    """Return the error of a consumer whose snapshot has failed, with what to do.

    destination, client_id: of the consumer.
    state: of the snapshot.
    """
    who = f"--destination {quote(destination)} --client-id {client_id}"
    return SnapshotRefused(
        f"canal: the snapshot of client {client_id} of {destination} has failed: {state.error}. Correct the reason"
        f" and run `canal-ha snapshot resume {who}`, or give the rest of its rows up with `canal-ha snapshot cancel"
        f" {who}`; then start this again"
    )
