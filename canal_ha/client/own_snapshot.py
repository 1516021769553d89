"""The last snapshot of a client, and what a consumer says if it has failed or brings no rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from shlex import quote

from canal_ha.errors import SnapshotRefused
from canal_ha.model.excerpt import some
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import HIDDEN, SnapshotPhase, SnapshotState


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


def no_rows(destination: str, client_id: int, wanted: Sequence[str], state: SnapshotState | None) -> str:
    """Return what to tell the user of a client id that exists already: the rows do not come. "" if they come.

    destination, client_id: of the consumer.
    wanted: the tables whose existing rows it wants; `*` alone: all that its filter keeps.
    state: of the snapshot when the consumer has subscribed, and acknowledged nothing yet.
    """
    held: tuple[str, ...] = ()
    to_read: tuple[str, ...] = ()
    if state is not None and state.phase is not SnapshotPhase.CANCELLED:
        held, to_read = tuple(table for table in state.tables if table != HIDDEN), state.remaining
    tables = held if wanted == ("*",) and held else wanted
    if missing := [table for table in tables if table not in held]:
        how = _adding(destination, client_id, missing)
        return f"client id {client_id} exists already, so the option snapshot brings no rows of {some(missing)}: {how}"
    if done := [table for table in tables if table not in to_read]:
        how = _adding(destination, client_id, done)
        return f"client id {client_id} has got the rows of {some(done)} already: {how} to read them again"
    return ""


def _adding(destination: str, client_id: int, tables: Sequence[str]) -> str:
    named = "SCHEMA.TABLE" if len(tables) != 1 or tables[0] == "*" else quote(tables[0])
    return f"run `canal-ha snapshot add --destination {quote(destination)} --client-id {client_id} --table {named}`"
