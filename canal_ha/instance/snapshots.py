"""Snapshots: begins the snapshots of a destination's clients, with tables that its source has."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

from canal_ha.config.model import InstanceConfig
from canal_ha.decode.filters import effective
from canal_ha.errors import SnapshotRefused
from canal_ha.instance.one_at_a_time import OneAtATime
from canal_ha.instance.origin import Origin
from canal_ha.meta.files import RunBlocking
from canal_ha.model.excerpt import some
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.snapshot import InitialSnapshot, SnapshotAction, SnapshotRequest, SnapshotState, changed

Names = Sequence[tuple[str, str]]  # of tables: schema and name


class Snapshots:
    """See the module. Reactor thread."""

    def __init__(
        self, config: InstanceConfig, origin: Origin, run_blocking: RunBlocking, compiling: OneAtATime
    ) -> None:
        """Create it.

        config: of the destination.
        origin: the source.
        run_blocking: runs a call on the pool.
        compiling: lets the filters of one account, or of one client id without one, be compiled one at a time.
        """
        self._config = config
        self._origin = origin
        self._run_blocking = run_blocking
        self._compiling = compiling

    async def initial(self, identity: ClientIdentity, wanted: InitialSnapshot) -> SnapshotState:
        """Return the snapshot of a client that begins.

        Raises SnapshotRefused, FilterInvalid, SourceUnavailable, SourceRefused.
        """
        known = await self.known_tables()
        tables, client = wanted.tables, replace(identity, filter=identity.filter or wanted.filter)
        if tables == ("*",):
            tables = await self._kept(client, known)
        else:
            await self.check_kept(client, tables, known)
        return self.begun(SnapshotRequest(SnapshotAction.START, tables), "", known)

    async def check_kept(self, identity: ClientIdentity, tables: Sequence[str], known: Names) -> None:
        """Raise SnapshotRefused if the client's filter drops one of the tables, and FilterInvalid.

        identity: the client, with its filter.
        tables: `schema.table` each; those that the source does not show are left out.
        known: the source's tables.
        """
        shown = [(schema, table) for schema, table in known if f"{schema}.{table}" in tables]
        kept = await self._kept(identity, shown)
        if dropped := [name for name in tables if name not in kept and tuple(name.split(".", 1)) in shown]:
            raise SnapshotRefused(
                f"{self._config.destination}: no row of {some(dropped)} would reach client id {identity.client_id},"
                " because of its filter, the destination's, or its account's: leave it out, or subscribe with a filter"
                " that keeps it"
            )

    async def known_tables(self) -> Names:
        """Ask the source for its tables. Raises SnapshotRefused, SourceUnavailable, SourceRefused."""
        try:
            return await self._run_blocking(self._origin.tables)
        except SnapshotRefused as refused:
            raise SnapshotRefused(f"{self._config.destination}: {refused}") from refused

    def begun(self, request: SnapshotRequest, stored: str, known: Names) -> SnapshotState:
        """Return the state of a snapshot that begins.

        request: to start it.
        stored: the text of the client's last snapshot; "" if it never had one.
        known: the source's tables.
        Raises SnapshotRefused, also for a table that the source does not show.
        """
        state = changed(stored, request, uuid4().hex[:12], int(time.time() * 1000))
        names = {f"{schema}.{table}" for schema, table in known}
        if missing := [table for table in state.tables if table not in names]:
            raise SnapshotRefused(
                f"{self._config.destination}: the source shows no table {some(missing)}: check the name with its letter"
                " case, or GRANT SELECT on it"
            )
        return state

    async def _kept(self, identity: ClientIdentity, names: Names) -> tuple[str, ...]:
        """Return those tables that the client's filter keeps."""
        config = self._config

        def kept() -> tuple[str, ...]:
            keeps = effective(
                config.filter_regex,
                config.filter_black_regex,
                identity.filter,
                config.filter_client_mode,
                identity.within.filter,
            )
            return tuple(f"{schema}.{table}" for schema, table in names if keeps.accepts(schema, table))

        async with self._compiling.of(identity.account or identity.client_id):
            return await self._run_blocking(kept)
