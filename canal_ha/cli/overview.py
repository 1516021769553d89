"""`canal-ha status --zk`: asks the nodes and shows the whole cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text  # cells are texts: rich reads brackets in a plain string as markup

from canal_ha.cli.figures import lines, queue_line, queue_problems, snapshot_line, too_late
from canal_ha.client.http_access import HttpAccess
from canal_ha.client.node_http import NO_LOGIN, fetch
from canal_ha.cluster.overview import ClientView, DestinationView, NodeView, Overview, read_overview
from canal_ha.errors import NodeUnreachable
from canal_ha.instance.alarms import MEANINGS
from canal_ha.model.excerpt import some
from canal_ha.model.figures import duration, size
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.reading import BlockingZnodes

ASKED_AT_ONCE = 16


def look(znodes: BlockingZnodes, access: HttpAccess = NO_LOGIN) -> Overview:
    """Read the cluster's state from ZooKeeper and from every status endpoint. Raises ZooKeeperUnavailable.

    znodes: a session.
    access: the login at the nodes.
    """
    seen = read_overview(znodes)
    asked = [node for node in seen.nodes if node.status_address]
    open_paths = znodes.open_to_all([tree.ROOT, tree.CLUSTER, *(tree.member(node.address) for node in asked)])
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        answers = pool.map(partial(_ask, access, open_paths), asked)
        return seen.with_statuses(dict(zip([node.address for node in asked], answers, strict=True)))


def _ask(access: HttpAccess, open_paths: Sequence[str], node: NodeView) -> Mapping[str, Any] | str:
    if not access.safe_for(node.status_address, named_by_anybody=bool(open_paths)):
        return (
            f"the login was not sent to {node.status_address}, because everybody may change {some(open_paths)}: run"
            " zk/acl.sh, use TLS and give --tls-ca, or ask this node with --url"
        )
    try:
        document = fetch(node.status_address, access)
    except NodeUnreachable as error:
        return str(error)
    if document["node"]["address"] != node.address:  # the endpoint is on loopback, so this machine's own node answered
        return f"{node.status_address} is {document['node']['address']} seen from here, not {node.address}"
    return document


def nobody(servers: str, seen: Overview) -> NodeUnreachable:
    """Return the error for a cluster without a live node. servers: of ZooKeeper."""
    if seen.nodes:
        missing = some([node.address for node in seen.nodes])
        return NodeUnreachable(
            f"no node is alive: ZooKeeper at {servers} answers, and misses {missing}. Start them, or look why they do"
            " not reach it"
        )
    destinations = len(seen.destinations)
    known = f"{destinations} destinations below {tree.DESTINATIONS}" if destinations else "no destination"
    return NodeUnreachable(
        f"no node is alive: ZooKeeper at {servers} answers, and has {known} and no node below {tree.CLUSTER}. Is this"
        " the right ensemble and chroot? One that came back empty gets its nodes back when they reconnect"
    )


def document_of(seen: Overview) -> dict[str, Any]:
    """Return the fields of cluster.overview by name, for --json."""
    return asdict(seen)


def show(seen: Overview, console: Console, max_lag: float = math.inf) -> None:
    """Print the cluster as tables, then the problems. max_lag: see `problems`."""
    console.print(picture(seen, max_lag))


def picture(seen: Overview, max_lag: float = math.inf) -> RenderableType:
    """Render nodes, destinations, clients and problems. max_lag: see `problems`."""
    parts: list[RenderableType] = [_nodes(seen) if seen.nodes else Text("no node is alive")]
    parts.append(_destinations(seen) if seen.destinations else Text("no destination is known"))
    clients = any(view.clients for view in seen.destinations)
    parts.append(_clients(seen) if clients else Text("no client has subscribed"))
    parts += [Text(lines(queue_line(view.name, view.queue))) for view in seen.destinations if view.queue]
    parts += [Text(lines(text)) for text in _snapshots(seen, "running", "paused")]
    parts += [Text(lines(problem), style="red") for problem in problems(seen, max_lag)]
    return Group(*parts)


def _snapshots(seen: Overview, *phases: str) -> Iterator[str]:
    """Yield a line for each client whose last snapshot is in one of these phases."""
    for view in seen.destinations:
        for client in view.clients:
            snapshot = client.stream.snapshot if client.stream else None
            if snapshot and snapshot["phase"] in phases:
                yield f"{view.name}, client {client.client_id}: {snapshot_line(snapshot)}"


def _texts(cells: Iterable[str]) -> Iterator[Text]:
    """Yield cells. Anybody may have written the texts, also into ZooKeeper."""
    return map(Text, map(lines, cells))


def _nodes(seen: Overview) -> Table:
    table = Table("node", "canal-ha", "kernel", "up", "status", "runs", "stands by for")
    for node in seen.nodes:
        runs = [view.name for view in seen.destinations if view.runs_on == node.address]
        stands_by = [view.name for view in seen.destinations if node.address in view.stand_by]
        table.add_row(
            *_texts(
                (
                    node.address,
                    node.version or "-",
                    node.kernel or "-",
                    duration(node.uptime_s),
                    "missing" if node.missing else "not reached" if node.problem else node.status_address or "-",
                    ", ".join(runs) or "-",
                    ", ".join(stands_by) or "-",
                ),
            )
        )
    return table


def _destinations(seen: Overview) -> Table:
    table = Table("destination", "runs on", "stands by", "source")
    for view in seen.destinations:
        nobody = "nobody" if view.configured else "nobody (not configured)"
        nobody = "nobody (starts at the first client)" if view.lazy else nobody
        nobody = "nobody (paused)" if view.paused else nobody
        runs_on = f"{view.runs_on} (released)" if view.released else view.runs_on or nobody
        table.add_row(*_texts((view.name, runs_on, "\n".join(view.stand_by) or "-", view.source_address or "-")))
    return table


def _clients(seen: Overview) -> Table:
    table = Table()
    for name in ("destination", "client", "active", "state", "cursor"):
        table.add_column(name, overflow="fold")
    for name in ("batches", "unacked", "behind", "bytes behind"):
        table.add_column(name, justify="right")
    for view in seen.destinations:
        for client in view.clients:
            table.add_row(*_texts((view.name, *_cells(client))))
    return table


def _cells(client: ClientView) -> tuple[str, ...]:
    stream = client.stream
    figures = ("-",) * 4
    if stream is not None:
        figures = (
            str(stream.batches),
            duration(stream.oldest_unacked_s),
            duration(stream.seconds_behind),
            size(stream.bytes_behind),
        )
    return (
        str(client.client_id),
        client.active or "-",
        stream.state if stream is not None else "-",
        str(client.cursor or "-"),
        *figures,
    )


def problems(seen: Overview, max_lag: float = math.inf) -> Iterator[str]:
    """Yield one line for each problem and for each node without figures.

    seen: the cluster.
    max_lag: seconds behind its source from which a client, or Kafka, is a problem.
    """
    for node in seen.nodes:
        if node.missing:
            yield (
                f"{node.address}: missing: it has ended without an orderly stop, or cannot reach ZooKeeper. If it is"
                " gone for good, run this command with --forget"
            )
        if node.problem:
            yield f"{node.address}: its figures are missing: {node.problem}"
        yield from (f"{node.address}: {alarm}" for alarm in node.alarms)
    for view in seen.destinations:
        yield from _problems_of(view, max_lag)
    yield from _snapshots(seen, "failed")


def _problems_of(view: DestinationView, max_lag: float) -> Iterator[str]:
    if view.problem:
        yield f"{view.name}: {view.problem}"
    elif view.configured and not (view.runs_on or view.paused or view.lazy):
        yield f"{view.name}: no owner; eligible nodes: {len(view.stand_by)}"
    if view.source_error:
        yield f"{view.name}: {view.source_error}"
    if view.queue:
        yield from queue_problems(view.name, view.queue, max_lag)
    for client in view.clients:
        if client.problem:
            yield f"{view.name}, client {client.client_id}: {client.problem}"
        if client.stream is None:
            continue
        if client.stream.error:
            yield f"{view.name}, client {client.client_id}: {client.stream.error}"
        for alarm in client.stream.alarms:
            yield f"{view.name}, client {client.client_id}: {MEANINGS.get(alarm, alarm)}"
        if client.stream.seconds_behind > max_lag:
            yield f"{view.name}, client {client.client_id}: {too_late(client.stream.seconds_behind, max_lag)}"
