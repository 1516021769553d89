"""Builds the errors for a server's cursor that does not fit the spool. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from canal_ha.errors import ClientIdTaken, DataLoss
from canal_ha.model.position import LogPosition, split_journal
from canal_ha.pipeline.options import SourceOptions
from canal_ha.spark.manifest import Manifest

_UNKNOWN = "JOURNAL:OFFSET"  # the user fills this in


def lost(destination: str, options: SourceOptions, uri: str, manifest: Manifest, cursor: LogPosition) -> DataLoss:
    """Build the error for acknowledged entries that are missing in the spool.

    destination: name of the destination.
    options: the query's.
    uri: the spool's.
    manifest: the spool's current manifest.
    cursor: the server's cursor.
    """
    who = (
        "this spool acknowledged them itself, so it was restored from an older copy"
        if cursor.mark
        else "another client or an operator moved the cursor there"
    )
    last = manifest.last
    again = (
        f" To have them delivered again: {_steps(destination, options, _ends(manifest, last, cursor))}"
        if last is not None
        else ""
    )
    return DataLoss(
        f"canal: changes are missing in the spool {uri}: {f'it ends at {last}' if last else 'it is empty'}, but the"
        f" server's cursor for client {options.client_id} of {destination} is at {cursor}, because {who}.{again} To"
        " give them up: set failOnDataLoss=false, or start with a new spoolDir and checkpoint"
    )


def taken(destination: str, options: SourceOptions, uri: str, manifest: Manifest, cursor: LogPosition) -> ClientIdTaken:
    """Build the error for a client id that another spool uses.

    destination: name of the destination.
    options: the query's.
    uri: the spool's.
    manifest: the spool's current manifest.
    cursor: the server's cursor.
    """
    return ClientIdTaken(
        f"canal: client id {options.client_id} of {destination} is in use by another spool: the cursor at {cursor} was"
        f" acknowledged by {cursor.mark!r}, and this query has spool {manifest.spool} at {uri}. Each would miss what"
        " the other one reads. Give this query its own clientId, spoolDir and checkpoint. If the other spool is"
        f" no longer used, continue with this spool from there: {_steps(destination, options, cursor.parts)}"
    )


def _ends(manifest: Manifest, last: LogPosition, cursor: LogPosition) -> Sequence[LogPosition]:
    """Return the positions to read again from: the end of the spool, one position for each source.

    A segment ends with an entry of one source. Up to that entry the spool has all changes of that source. A position
    without a journal belongs to a source of which no segment has the end.
    """
    if not cursor.part:
        return (last,)
    places = []
    for each in cursor.parts:
        alone = sum(other.server_id == each.server_id for other in cursor.parts) == 1
        base, _ = split_journal(each.journal)
        ends = [
            segment.last
            for segment in manifest.segments
            if alone and segment.last.server_id == each.server_id and split_journal(segment.last.journal)[0] == base
        ]
        end = ends[-1] if ends else LogPosition("", 0)
        places.append(LogPosition(end.journal, end.offset, part=each.part))
    return places


def _steps(destination: str, options: SourceOptions, places: Sequence[LogPosition]) -> str:
    """Describe how to make the server deliver from these positions, with complete commands."""
    run = " and ".join(f"`{_set(destination, options, place)}`" for place in places)
    if options.zk_servers:
        steps = f"1. Stop the query. 2. Run: {run} 3. Start the query."
    else:
        steps = (
            "1. Stop the query. 2. Stop the node. 3. On its machine run, with the node's configuration directory as"
            f" DIR: {run} 4. Start the node and the query."
        )
    missing = " and ".join(f"source {place.part}" for place in places if not place.journal)
    if missing:
        steps += f" The spool has no position of {missing}: use one from before the copy was made."
    kept = " and ".join(
        f"{place.journal} (source {place.part})" if place.part else place.journal for place in places if place.journal
    )
    if kept:
        steps += f" This works as long as the source{'s keep' if len(places) > 1 else ' keeps'} {kept}."
    return steps


def _set(destination: str, options: SourceOptions, place: LogPosition) -> str:
    where = ("--zk", options.zk_servers) if options.zk_servers else ("--conf", "DIR")
    to = f"{place.journal}:{place.offset}" if place.journal else _UNKNOWN
    return shlex.join(
        (
            *("canal-ha", "cursor", "set", "--destination", destination, "--client-id", str(options.client_id)),
            *("--to", f"{place.part}/{to}" if place.part else to, *where),
        )
    )
