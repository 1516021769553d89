"""What a user reads when the server's cursor and the spool do not fit together. Pure."""

from __future__ import annotations

from canal_ha.errors import ClientIdTaken, DataLoss
from canal_ha.model.position import LogPosition
from canal_ha.spark.manifest import Manifest
from canal_ha.spark.options import SourceOptions


def lost(destination: str, options: SourceOptions, uri: str, manifest: Manifest, cursor: LogPosition) -> DataLoss:
    """Entries were acknowledged that the spool does not have."""
    who = (
        "this spool itself had acknowledged them, so it was restored from an older copy"
        if cursor.mark
        else "another client or an operator moved the cursor there"
    )
    last = manifest.last
    again = (
        " To have them delivered again, as long as the source has that binlog: stop the query, run"
        f" `{_set(destination, options, last)}`, start it again."
        if last is not None
        else ""
    )
    return DataLoss(
        f"canal: changes are missing in the spool {uri}: it ends at {last or 'nothing'}, but the server's cursor for"
        f" client {options.client_id} of {destination} is at {cursor}, and {who}.{again} To give them up: set"
        " failOnDataLoss=false, or begin anew with another spoolDir and checkpoint"
    )


def taken(destination: str, options: SourceOptions, uri: str, manifest: Manifest, cursor: LogPosition) -> ClientIdTaken:
    """Another spool acknowledges with this client id."""
    return ClientIdTaken(
        f"canal: client id {options.client_id} of {destination} is in use by another spool: the cursor at {cursor} was"
        f" acknowledged by {cursor.mark!r}, and this query has spool {manifest.spool} at {uri}. Each would miss what"
        " the other one reads. Give this query a clientId, spoolDir and checkpoint of its own. If the other spool is"
        f" gone for good: `{_set(destination, options, cursor)}` begins at that position with this one"
    )


def _set(destination: str, options: SourceOptions, position: LogPosition) -> str:
    where = f"--zk {options.zk_servers}" if options.zk_servers else "--conf DIR"
    return (
        f"canal-ha cursor set --destination {destination} --client-id {options.client_id}"
        f" --to {position.journal}:{position.offset} {where}"
    )
