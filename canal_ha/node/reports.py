"""The reports of a node over HTTP besides its status: sights, placements, lags, logs and tables. Reactor thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from canal_ha import logs
from canal_ha.accounts import gate
from canal_ha.accounts.account import Account
from canal_ha.admin.api import Query, Report
from canal_ha.admin.cluster_view import ClusterView
from canal_ha.admin.document import shown
from canal_ha.admin.guest import Guest
from canal_ha.admin.openapi import openapi
from canal_ha.admin.placements import Placements, placed_document
from canal_ha.admin.seen import Sightings
from canal_ha.errors import LocalProtocolError, NotAllowed, NotRunningHere
from canal_ha.instance.embedded import Embedded
from canal_ha.server.http_login import HttpRefusal

LAG_S = 3600.0


def reports_of(
    view: ClusterView,
    seen: Sightings,
    embedded: Embedded,
    placements: Placements,
    log_dir: Path,
    configuration: Callable[[str], dict[str, Any] | None] = lambda destination: None,
) -> Mapping[str, Report]:
    """Return the reports by kind of request.

    view: looks at the cluster.
    seen: what this node has seen.
    embedded: the instances that run here.
    placements: where destinations run.
    log_dir: of the node.
    configuration: what is in use, of a destination or, for "", of the node; None for an unknown destination.
    """

    async def cluster(_: str, guest: Guest, query: Query) -> dict[str, Any]:
        return await view.look(guest)

    async def seen_here(_: str, guest: Guest, query: Query) -> dict[str, Any]:
        return seen_document(seen, guest.account)

    async def lag(destination: str, guest: Guest, query: Query) -> dict[str, Any]:
        if embedded.running(destination) is None:
            raise NotRunningHere(destination)
        streams = [
            {
                "client_id": client_id,
                "at": [round(each.at, 3) for each in samples],
                "seconds_behind": [each.seconds for each in samples],
                "bytes_behind": [each.size for each in samples],
            }
            for client_id, samples in seen.lags(destination, time.time() - LAG_S).items()
        ]
        return {"destination": destination, "streams": streams}

    async def log(destination: str, guest: Guest, query: Query) -> dict[str, Any]:
        if refused := destination in logs.OF_THE_NODE and gate.refusal(guest.account, gate.NODE_LOG):
            raise NotAllowed(f"{destination} is the name of a log file of the node: {refused}")
        return {"lines": logs.tail(log_dir, destination)}  # 64 KiB; the log is written on this thread too

    async def tables(destination: str, guest: Guest, query: Query) -> dict[str, Any]:
        table = query.get("table", "")
        if not table:
            names = await embedded.tables(destination, guest.account.within)
            return {"destination": destination, "tables": sorted(f"{schema}.{name}" for schema, name in names)}
        schema, _, name = table.partition(".")
        within = guest.account.within
        definition = await embedded.definition(destination, schema, name, within) if name else None
        if definition is None:
            raise LocalProtocolError(f"the source of {destination} shows no table {table}: write schema.table")
        return {"destination": destination, "table": table, "definition": definition}

    async def destinations(_: str, guest: Guest, query: Query) -> dict[str, Any]:
        return placed_document([each for each in await placements.placed() if shown(guest.account, each.destination)])

    async def config(destination: str, guest: Guest, query: Query) -> dict[str, Any]:
        found = configuration(destination)
        if found is None:
            raise HttpRefusal(404, f"{destination} is not configured on this node")
        return found

    async def description(_: str, guest: Guest, query: Query) -> dict[str, Any]:
        return openapi()

    return {
        gate.CLUSTER: cluster,
        gate.SEEN: seen_here,
        gate.LAG: lag,
        gate.LOG: log,
        gate.NODE_LOG: log,
        gate.TABLES: tables,
        gate.DESTINATIONS: destinations,
        gate.CONFIGURATION: config,
        gate.DESTINATION_CONFIGURATION: config,
        gate.OPENAPI: description,
    }


def seen_document(seen: Sightings, account: Account) -> dict[str, Any]:
    """Return what a node has seen, as far as an account may see it."""
    return {
        "gone": [{"address": address, "since": round(since, 3)} for address, since in seen.gone.items()],
        "changes": [
            {"destination": each.destination, "before": each.before, "after": each.after, "at": round(each.at, 3)}
            for each in seen.changes
            if shown(account, each.destination)
        ],
    }
