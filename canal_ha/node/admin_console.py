"""AdminConsole: carries out the requests of canal's admin protocol. Reactor thread.

canal answers an action with 1 or 0. Why one was not done is in the log. A destination's start and stop are resume and
pause, which hold for the whole cluster and survive a restart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from twisted.internet.defer import DeferredLock

from canal_ha import logs
from canal_ha.accounts import gate
from canal_ha.accounts.account import Account
from canal_ha.admin.placements import Placements
from canal_ha.cluster.cluster import Cluster
from canal_ha.config.model import InstanceConfig
from canal_ha.errors import CanalError, DestinationUnknown, NotAllowed
from canal_ha.wire import admin_session as requests
from canal_ha.wire.admin_session import AdminRequest

LOG = logs.get(__name__)
DONE, NOT_DONE = "1", "0"


class NodeServing(Protocol):
    """What a node serves: its data port and its destinations."""

    @property
    def serving(self) -> bool:
        """Whether it serves them."""
        ...

    @property
    def running(self) -> tuple[str, ...]:
        """The destinations that run here."""
        ...

    @property
    def configured(self) -> Mapping[str, InstanceConfig]:
        """The destinations that could run here."""
        ...

    async def halt(self) -> None:
        """Close the data port and let go of all destinations, until `serve`."""
        ...

    async def serve(self) -> None:
        """Undo `halt`. Raises ConfigError for a taken port."""
        ...

    async def renew(self, destination: str) -> None:
        """Stop a destination here and begin again, as after a change of its file."""
        ...


class AdminConsole:
    """See the module.

    served: the node's port and destinations.
    placements: where destinations run.
    cluster: None without ZooKeeper.
    log_dir: of the node.
    """

    def __init__(self, served: NodeServing, placements: Placements, cluster: Cluster | None, log_dir: Path) -> None:
        self._served = served
        self._placements = placements
        self._cluster = cluster
        self._log_dir = log_dir
        self._lock = DeferredLock()  # one action at a time, as in canal
        self._actions: Mapping[str, Callable[[str], Awaitable[bool]]] = {
            requests.SERVER_START: self._start,
            requests.SERVER_STOP: self._stop,
            requests.SERVER_RESTART: self._restart,
            requests.INSTANCE_START: self._resume,
            requests.INSTANCE_STOP: self._pause,
            requests.INSTANCE_RESTART: self._renew,
            requests.INSTANCE_RELEASE: self._release,
        }

    async def carry_out(self, request: AdminRequest, who: Account) -> str:
        """Return the text of the answer. The caller has asked the gate. Raises CanalError."""
        action = self._actions.get(request.kind)
        if action is not None:
            return await self._acted(action, request)
        match request.kind:
            case requests.SERVER_CHECK:
                return _answer(self._served.serving)
            case requests.SERVER_LIST:
                return ",".join(name for name in self._served.running if who.reaches(name))
            case requests.INSTANCE_CHECK:
                return _answer(request.destination in self._served.running)
            case _:
                return self._log(request, who)

    async def _acted(self, action: Callable[[str], Awaitable[bool]], request: AdminRequest) -> str:
        await self._lock.acquire()
        try:
            if request.destination and request.destination not in self._served.configured:
                raise DestinationUnknown(f"this node has no destination {request.destination}")
            return _answer(await action(request.destination))
        except CanalError as error:
            LOG.warning(
                "admin_protocol.not_done", action=request.kind, destination=request.destination, error=str(error)
            )
            return NOT_DONE
        finally:
            self._lock.release()

    # ---- the node

    async def _start(self, _: str) -> bool:
        if self._served.serving:
            return False
        await self._served.serve()
        return True

    async def _stop(self, _: str) -> bool:
        if not self._served.serving:
            return False
        await self._served.halt()
        return True

    async def _restart(self, _: str) -> bool:
        await self._stop("")
        return await self._start("")

    # ---- a destination

    async def _resume(self, destination: str) -> bool:
        if await self._is_paused(destination):
            await self._placements.resume(destination, dry_run=False)
        return True

    async def _pause(self, destination: str) -> bool:
        if not await self._is_paused(destination):
            await self._placements.pause(destination, dry_run=False)
        return True

    async def _renew(self, destination: str) -> bool:
        if not self._served.serving or await self._is_paused(destination):
            return False
        await self._served.renew(destination)
        return True

    async def _release(self, destination: str) -> bool:
        """Let another node take the destination. This one waits 5 s before it races for it again."""
        if self._cluster is None or not self._cluster.runs(destination):
            return False
        self._cluster.hand_over(destination)
        return True

    async def _is_paused(self, destination: str) -> bool:
        return any(each.paused for each in await self._placements.placed() if each.destination == destination)

    # ---- logs

    def _log(self, request: AdminRequest, who: Account) -> str:
        """Return names of files, or the end of one: it has 64 KiB at most, and is written on this thread too."""
        destination = request.destination
        if request.kind == requests.LOG_INSTANCE:
            if destination not in self._served.configured:
                raise DestinationUnknown(f"this node has no destination {destination}")
            if refused := destination in logs.OF_THE_NODE and gate.refusal(who, requests.LOG_SERVER):
                raise NotAllowed(f"{destination} is the name of a log file of the node: {refused}")
        if request.lists:
            return ",".join(logs.files(self._log_dir, destination))
        return "\n".join(
            logs.tail(
                self._log_dir,
                destination,
                request.file if request.kind == requests.LOG_INSTANCE else "",
                request.lines if request.lines > 0 else logs.TAIL_LINES,
            )
        )


def _answer(done: bool) -> str:
    return DONE if done else NOT_DONE
