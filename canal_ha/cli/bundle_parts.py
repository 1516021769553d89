"""What a debug bundle has: of a node on this machine, and of a cluster in ZooKeeper."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError

from canal_ha.cli.bundle import Bundle
from canal_ha.cli.destination_node import at_home
from canal_ha.cli.overview import document_of, look
from canal_ha.client.http_access import HttpAccess
from canal_ha.client.node_answer import STATUS
from canal_ha.client.node_http import WHOLE_S, fetch
from canal_ha.config.effective import of_destination, of_node, secrets_of
from canal_ha.config.model import CanalConfig, ZooKeeperAccess
from canal_ha.decode import kernel
from canal_ha.errors import CanalError
from canal_ha.model.excerpt import message
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import told
from canal_ha.version import VERSION
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.reading import BlockingZnodes

LOG_BYTES = 512 * 1024
DESTINATIONS_MOST = 100  # with their logs
ZNODES_MOST = 5000
ZNODE_BYTES = 4096  # of its text
ZNODES_S = 60.0
METRICS_BYTES = 4 << 20
_READ = {"running", "filter", "source", "paused"}
_POSITIONS = {"cursor", "parse"}
_MEMBERS = {"cluster", "nodes"}  # the nodes below them


def about(bundle: Bundle) -> None:
    """Add versions and the platform."""
    packages = sorted(
        f"{each.name} {each.version}"
        for each in importlib.metadata.distributions()
        if each.metadata is not None and each.name
    )
    bundle.add_json("about.json", {
        "canal_ha": VERSION,
        "kernel": kernel.BUILD,
        "python": sys.version,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "load": os.getloadavg(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "packages": packages,
    })  # fmt: skip


def of_home(bundle: Bundle, config: CanalConfig, access: HttpAccess) -> None:
    """Add what a node on this machine has: its configuration, its logs and, if it runs, its status and its metrics.

    config: of the node.
    access: the login.
    """
    bundle.hide(secrets_of(config))
    bundle.add_json("configuration/node.json", [_plain(each) for each in of_node(config, config)])
    for instance in config.destinations:
        name = f"configuration/{instance.destination}.json"
        bundle.add_json(name, [_plain(each) for each in of_destination(config, instance)])
    for text in (*config.warnings, *(f"{each.destination}: {each.error}" for each in config.refused)):
        bundle.problem("configuration", text)
    _logs(bundle, config)
    try:
        url, access = at_home(config, access)
    except (CanalError, OSError) as error:
        bundle.problem("status.json", error)
        return
    bundle.hide((access.password, access.token))
    for name, path, shape in (("status.json", "/api/v1/status", STATUS), ("seen.json", "/api/v1/seen", {})):
        try:
            bundle.add_json(name, fetch(url, access, path, shape))
        except CanalError as error:
            bundle.problem(name, error)
    _metrics(bundle, config, access)


def of_cluster(bundle: Bundle, servers: str, zk_access: ZooKeeperAccess, access: HttpAccess) -> None:
    """Add what ZooKeeper and the nodes tell about a cluster.

    servers: of ZooKeeper.
    zk_access: how to reach them, and as whom.
    access: the login at the nodes.
    """
    for login in (zk_access.digest, zk_access.sasl):
        bundle.hide((login, login.partition(":")[2]))
    bundle.hide((access.password, access.token))
    try:
        with BlockingZnodes(servers, zk_access) as znodes:
            try:
                bundle.add_json("cluster.json", document_of(look(znodes, access)))
            except CanalError as error:
                bundle.problem("cluster.json", error)
            bundle.add_json("znodes.json", dict(znodes_of(znodes, bundle)))
    except CanalError as error:
        bundle.problem("znodes.json", error)


def _plain(value: Any) -> dict[str, str]:
    return {"key": value.key, "value": value.value, "origin": value.origin}


def _logs(bundle: Bundle, config: CanalConfig) -> None:
    """Add the ends of the node's log and of the logs of its destinations, whole lines."""
    names = [each.destination for each in config.refused if each.layers]
    names += [each.destination for each in config.destinations]
    for each in config.refused:
        if not each.layers:
            bundle.problem(f"logs/{each.destination}", "its file cannot be read, so nobody knows what to hide")
    files = [("canal", "canal.log")]
    files += [(name, file) for name in names[:DESTINATIONS_MOST] for file in (f"{name}.log", "meta.log")]
    if len(names) > DESTINATIONS_MOST:
        bundle.problem("logs", f"only those of {DESTINATIONS_MOST} of {len(names)} destinations")
    for directory, file in files:
        path = config.log_dir / directory / file
        try:
            bundle.add(f"logs/{directory}/{file}", _end_of(path), tail=True)
        except OSError as error:
            bundle.problem(f"logs/{directory}/{file}", f"{path}: {error.strerror}")


def _end_of(path: Path) -> bytes:
    """Return the last lines of a file. A line that is cut could begin in the middle of a secret. Raises OSError."""
    with path.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - LOG_BYTES))
        text = log.read(LOG_BYTES)
    return text if size <= LOG_BYTES else text.partition(b"\n")[2]


def _metrics(bundle: Bundle, config: CanalConfig, access: HttpAccess) -> None:
    if config.metrics_port <= 0:
        bundle.problem("metrics.txt", "canal.metrics.pull.port is off")
        return
    scheme = "https" if config.tls and "metrics" in config.tls.ports else "http"
    host = config.metrics_bind if config.metrics_bind not in ("", "0.0.0.0", "::") else "127.0.0.1"
    url = f"{scheme}://[{host}]:{config.metrics_port}/" if ":" in host else f"{scheme}://{host}:{config.metrics_port}/"
    try:
        with access.opener(time.monotonic() + WHOLE_S).open(url, timeout=WHOLE_S) as answer:
            bundle.add("metrics.txt", answer.read(METRICS_BYTES))
    except (URLError, OSError, ValueError) as error:
        bundle.problem("metrics.txt", f"{url}: {getattr(error, 'reason', None) or error}")


def znodes_of(znodes: BlockingZnodes, bundle: Bundle) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield path, figures and, for those of this tree, the text of each znode below /otter/canal, level by level."""
    until = time.monotonic() + ZNODES_S
    left, seen = deque([tree.ROOT]), 0
    while left:
        path = left.popleft()
        if seen >= ZNODES_MOST or time.monotonic() > until:
            bundle.problem(
                "znodes.json", f"ends before {message(path)}: more than {ZNODES_MOST} znodes, or {ZNODES_S:.0f} s"
            )
            return
        seen += 1
        try:
            node = znodes.get(path)
            if node is None:
                continue
            left += [f"{path}/{name}" for name in znodes.children(path)]
        except CanalError as error:
            yield path, {"error": str(error)}
            continue
        found: dict[str, Any] = {"version": node.version, "bytes": len(node.data), "ephemeral": bool(node.owner)}
        *_, parent, name = path.split("/")
        if name in _POSITIONS and node.data:
            found |= _position(node.data)
        elif name in _READ or parent in _MEMBERS:
            found["text"] = node.data[:ZNODE_BYTES].decode(errors="backslashreplace")
        yield path, found


def _position(data: bytes) -> dict[str, str]:
    """Return the text of a position without hashes and keys of rows. One that cannot be read may have both."""
    try:
        at = LogPosition.from_json(data.decode(errors="replace"))
        shown = replace(at.public, snapshot=told(at.snapshot))
        return {"text": shown.to_json(with_type=True)[:ZNODE_BYTES]}
    except ValueError as error:
        return {"error": f"it cannot be read: {error}"}
