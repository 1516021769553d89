"""Snapshots: begins the snapshots of a destination's clients, with tables that its source has."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from canal_ha.config.model import InstanceConfig
from canal_ha.decode.filters import TableFilter, effective
from canal_ha.decode.privacy import Privacy
from canal_ha.errors import SnapshotRefused, TableMissing
from canal_ha.instance.one_at_a_time import OneAtATime
from canal_ha.instance.origin import Origin
from canal_ha.meta.files import RunBlocking
from canal_ha.model.condition import check_asked
from canal_ha.model.excerpt import some
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.privacy import Within
from canal_ha.model.snapshot import (
    InitialSnapshot,
    SnapshotAction,
    SnapshotRequest,
    SnapshotState,
    changed,
    check_tables,
    without_gone,
)

Known = Mapping[str, tuple[str, str]]  # schema and name of the source's tables, by `schema.table`


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
        tables, client = wanted.tables, replace(identity, filter=identity.filter or wanted.filter)
        every = tables == ("*",)
        if not every:
            check_tables(tables)
        known = await self.known_tables()
        if every:
            tables = await self._kept(client, known.values())
            if not tables:
                raise SnapshotRefused(
                    f"{self._config.destination}: the source has no table that the filter of client id"
                    f" {identity.client_id} keeps, so there are no existing rows: check the filter, or subscribe"
                    " without a snapshot"
                )
        else:
            await self.check_kept(client, tables, known)
        return self.begun(SnapshotRequest(SnapshotAction.START, tables), "", known)

    async def check_within(self, request: SnapshotRequest, within: Within) -> Callable[[str], bool]:
        """Return whether an account may know the name of a table, as a function.

        Raises SnapshotRefused if the account asks for more than it may read itself, and FilterInvalid. Who asks sees
        how many rows come, also if they go to another account. The answer about a table outside its filter does not
        depend on whether the source, or the snapshot, has the table.

        request: to start a snapshot, to add to one, or to leave tables out.
        within: of the account that asks.
        """

        def check() -> Callable[[str], bool]:
            allowed = TableFilter(within.filter, "")

            def shown(table: str) -> bool:
                return allowed.accepts(*_names(table))

            outside = [table for table in (*request.tables, *request.leave_out) if not shown(table)]
            if outside:
                raise SnapshotRefused(
                    f"{self._config.destination}: {some(outside)} is outside the filter of the account that asks:"
                    " leave it out"
                )
            privacy = Privacy([within.privacy], "unused")
            for table, condition in request.where.items():
                check_asked(condition, table, privacy.columns_of(*_names(table)))
            return shown

        return await self._run_blocking(check)

    async def check_kept(self, identity: ClientIdentity, tables: Sequence[str], known: Known) -> None:
        """Raise SnapshotRefused if the client's filter drops one of the tables, and FilterInvalid.

        identity: the client, with its filter.
        tables: `schema.table` each. Those that the source does not show are left to `begun`, unless the filter drops
            them and the account has one: it gets the same answer for them, so it cannot learn which tables there are
            outside its filter.
        known: the source's tables.
        """
        kept = set(await self._kept(identity, [known.get(name) or _names(name) for name in tables]))
        limited = bool(identity.within.filter)
        if dropped := [name for name in tables if name not in kept and (limited or name in known)]:
            unknown = ", or because the source shows no such table" if limited else ""
            raise SnapshotRefused(
                f"{self._config.destination}: no row of {some(dropped)} would reach client id {identity.client_id},"
                f" because of its filter, the destination's, or its account's{unknown}: leave it out, or subscribe with"
                " a filter that keeps it"
            )

    async def known_tables(self) -> Known:
        """Ask the source for its tables. Raises SnapshotRefused, SourceUnavailable, SourceRefused.

        Of two tables with one `schema.table`, it returns the one whose schema has no dot.
        """

        def asked() -> Known:
            pairs = sorted(self._origin.tables(), key=lambda pair: "." not in pair[0])
            return {f"{schema}.{table}": (schema, table) for schema, table in pairs}

        try:
            return await self._run_blocking(asked)
        except SnapshotRefused as refused:
            raise SnapshotRefused(f"{self._config.destination}: {refused}") from refused

    def begun(self, request: SnapshotRequest, stored: str, known: Known) -> SnapshotState:
        """Return the state of a snapshot that begins.

        request: to start it.
        stored: the text of the client's last snapshot; "" if it never had one.
        known: the source's tables.
        Raises SnapshotRefused, also for a table whose schema has a dot, and if no row would arrive; and TableMissing
            for a table of the request that the source does not show. A table of the stored snapshot that is gone
            meanwhile is no reason to refuse others.
        """
        check_inserts(self._config)
        if dotted := [table for table in request.tables if known.get(table, _names(table)) != _names(table)]:
            raise SnapshotRefused(
                f"{self._config.destination}: {some(dotted)}: the name of the schema has a dot, and a snapshot takes"
                " the first dot for the end of that name: leave the table out"
            )
        state = self.changed(request, stored)
        if missing := [table for table in request.tables if table not in known]:
            raise TableMissing(
                f"{self._config.destination}: the source shows no table {some(missing)}: check the name with its letter"
                " case, or GRANT SELECT on it; of a view, name the tables that it reads"
            )
        return state

    def changed(
        self, request: SnapshotRequest, stored: str, shown: Callable[[str], bool] = lambda table: True
    ) -> SnapshotState:
        """Return the state of a snapshot after a request, without a look at the source. Raises SnapshotRefused.

        request: what to do.
        stored: the text of the client's last snapshot.
        shown: see check_within.
        """
        return changed(stored, request, uuid4().hex[:12], int(time.time() * 1000), shown)

    def without_gone(self, gone: Sequence[str], stored: str, known: Known) -> SnapshotState | None:
        """Return the state of a snapshot without tables that are gone; None if it has none of them to read.

        gone: tables that the client has seen go. Some may be there again.
        stored: the text of the client's last snapshot.
        known: the source's tables.
        """
        return without_gone(stored, [table for table in gone if table not in known], uuid4().hex[:12])

    async def _kept(self, identity: ClientIdentity, names: Collection[tuple[str, str]]) -> tuple[str, ...]:
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


def check_inserts(config: InstanceConfig) -> None:
    """Raise SnapshotRefused if a filter of the destination drops inserted rows, which those of a snapshot are."""
    dropping = (
        (config.decode.filter_rows, "canal.instance.filter.rows"),
        (config.decode.filter_dml_insert, "canal.instance.filter.dml.insert"),
    )
    if dropped_by := [key for drops, key in dropping if drops]:
        raise SnapshotRefused(
            f"{config.destination}: no row of a snapshot would arrive, because {' and '.join(dropped_by)} drops"
            " inserted rows: set it to false"
        )


def _names(table: str) -> tuple[str, str]:
    schema, _, name = table.partition(".")
    return schema, name
