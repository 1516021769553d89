"""Attack on ZooKeeper: documents that no node wrote, and then another node must claim the destination."""

from __future__ import annotations

import time

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from canal_ha.zookeeper import tree
from lab.hostile.attack import Assault, Attack
from lab.hostile.stage import DESTINATION, Stage
from lab.zookeeper import session

_DOCUMENTS = (
    b"",
    b"null",
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'"' + b'\\"' * 40_000,
    b"9" * 100_000,
    b'{"@type":"com.alibaba.otter.canal.protocol.position.LogPosition","identity":7,"postion":[]}',
    b"x" * 900_000,
)
_NAMES = ("²", "٣", "-", "--1", "1e5", "99999999999", "cursor", "a" * 200, " 7", "0x10")
CHILDREN = 5000  # that look like client ids
READ_S = 0.001  # that each of them may add to a fail-over: the new owner reads two znodes of it


def poison(assault: Assault) -> None:
    """Bad children, names that look like numbers, nested and long documents; then the owner stops."""
    written = 0
    usual_s = _hand_over(assault.stage)
    with session(assault.stage.zookeeper.hosts) as zookeeper:
        for parent in (tree.destination(DESTINATION), tree.DESTINATIONS, tree.CLUSTER):
            for number, name in enumerate(_NAMES):
                written += _put(zookeeper, f"{parent}/{name}", _DOCUMENTS[number % len(_DOCUMENTS)])
        for number, document in enumerate(_DOCUMENTS):
            client = f"{tree.destination(DESTINATION)}/{3000 + number}"
            written += _put(zookeeper, client, document)
            written += _put(zookeeper, f"{client}/cursor", document)
            written += _put(zookeeper, f"{client}/filter", document)
        for number in assault.rounds(CHILDREN):
            written += _put(zookeeper, f"{tree.destination(DESTINATION)}/{5000 + number}", b"")
    poisoned_s = _hand_over(assault.stage)
    assault.usual_s = usual_s + READ_S * assault.times(CHILDREN)
    assault.done = f"{written} znodes; a fail-over took {usual_s:.2f} s before and {poisoned_s:.2f} s after"


def _put(zookeeper: KazooClient, path: str, data: bytes) -> int:
    try:
        zookeeper.create(path, data, makepath=True)
    except NodeExistsError:
        return 0
    return 1


def _hand_over(stage: Stage) -> float:
    """Stop the owner, and start it again when the other node has claimed; return the victim's longest wait, s."""
    owner = stage.owner
    began = time.monotonic()
    owner.stop()
    waited_s = stage.victim.worst_s(began)
    owner.start()
    return waited_s


ATTACKS = (Attack("poison", "bad znodes, then a fail-over", poison, moves=True),)
