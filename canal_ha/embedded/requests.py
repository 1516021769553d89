"""What both faces of an embedded server do: requests to a node, each as a call on the reactor."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from canal_ha import logs
from canal_ha.config.live import main_in_use
from canal_ha.config.load import load_again, load_instance, load_usable
from canal_ha.config.model import CanalConfig, InstanceConfig
from canal_ha.decode.filters import TableFilter
from canal_ha.embedded.reactor_thread import ReactorCall, is_forked, running_reactor
from canal_ha.errors import LocalProtocolError
from canal_ha.meta.batch_ids import BatchIds
from canal_ha.model.batch import EMPTY_BATCH_ID, GetAnswer
from canal_ha.model.excerpt import excerpt
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import CLIENT_IDS, ClientIdentity, ClientKey
from canal_ha.model.snapshot import InitialSnapshot
from canal_ha.wire.packets import DEFAULT_FETCH_SIZE

if TYPE_CHECKING:
    from canal_ha.node.node import Node

T = TypeVar("T")
Settings = Mapping[str, object]
LOG = logs.get(__name__)
AT_ONCE_MS = -1
WITHOUT_LIMIT_MS = 0

QUIET: Mapping[str, str] = {
    "canal.withoutNetty": "true",
    "canal.metrics.pull.port": "0",
    "canal.admin.port": "0",
    "canal.admin.http.port": "-1",
    "canal.auto.scan": "false",
}
"""Settings of every embedded server, unless its program sets the same keys: no ports, and no scan of the directory."""

_batch_ids = BatchIds()  # of the process: an id of a server that has stopped names no batch of the next one
_serving: list[Requests] = []  # the server that runs; only the reactor's thread touches the list


class Requests:
    """See the module. Every method may be called on any thread and returns a call that has begun."""

    def __init__(self, conf_dir: str | os.PathLike[str], settings: Settings, *, exact: bool) -> None:
        """Serve nothing yet. See EmbeddedServer."""
        self._conf_dir = Path(conf_dir)
        self._settings = {**QUIET, **_texts(settings)}
        self._exact = exact
        self._reactor: Any = None
        self._config: CanalConfig | None = None
        self._node: Node | None = None
        # answers to GETs whose callers were cancelled
        self._unheard: defaultdict[ClientKey, list[GetAnswer]] = defaultdict(list)

    # ---- the server

    def start(self) -> ReactorCall[None]:
        """See EmbeddedServer.start."""
        self._reactor = running_reactor(_stop_serving)
        return self._call(self._start)

    def stop(self) -> ReactorCall[None] | None:
        """See EmbeddedServer.stop. None if it was never started in this process."""
        return self._call(self._stop) if self._reactor and not is_forked() else None

    async def _start(self) -> None:
        from canal_ha.node.node import Node

        if self._node is not None:
            raise LocalProtocolError("this embedded server runs already")
        if _serving:
            raise LocalProtocolError(
                "another embedded server runs in this process: stop it first, or start the destinations on it"
            )
        _serving.append(self)
        try:
            config = await self._aside(self._load)
            for warning in config.warnings:
                LOG.warning("config.warning", text=warning)
            node = Node(config, self._reactor, _batch_ids)
            try:
                await node.start()
            except BaseException:
                await node.stop()
                raise
        except BaseException:
            _serving.remove(self)
            raise
        self._config, self._node = config, node

    def _load(self) -> CanalConfig:
        """Read the configuration. Raises ConfigError."""
        check_filter = partial(TableFilter, exclude="")
        config = load_usable(self._conf_dir, (), os.environ, check_filter, self._settings)
        if config.refused:
            raise config.refused[0].error
        return config

    async def _stop(self) -> None:
        node, self._node = self._node, None
        if node is None:
            return
        self._unheard.clear()
        try:
            await node.stop()
        finally:
            _serving.remove(self)

    # ---- destinations

    def start_destination(self, destination: str, settings: Settings | None) -> ReactorCall[None]:
        """See EmbeddedServer.start_destination."""

        async def work() -> None:
            node, config = self._running()
            given, check_filter = _texts(settings or {}), partial(TableFilter, exclude="")

            def load() -> tuple[InstanceConfig, tuple[str, ...]]:
                found = load_again(config, (), os.environ)
                main = main_in_use(config, found) if found.main else config.main
                return load_instance(replace(config, main=main), destination, os.environ, check_filter, given)

            instance, warnings = await self._aside(load)
            for warning in warnings:
                LOG.warning("config.warning", text=warning)
            await node.end(destination)
            await node.begin(instance)

        return self._call(work)

    def stop_destination(self, destination: str) -> ReactorCall[None]:
        """See EmbeddedServer.stop_destination."""
        return self._call(lambda: self._running()[0].end(destination))

    def destinations(self) -> ReactorCall[tuple[str, ...]]:
        """See EmbeddedServer.destinations."""

        async def work() -> tuple[str, ...]:
            return self._running()[0].embedded.destinations

        return self._call(work)

    def alarms(self) -> ReactorCall[tuple[str, ...]]:
        """See EmbeddedServer.alarms."""

        async def work() -> tuple[str, ...]:
            return tuple(alarm.text for alarm in self._running()[0].alarms())

        return self._call(work)

    # ---- clients

    def subscribe(self, identity: ClientIdentity, snapshot: tuple[str, ...]) -> ReactorCall[None]:
        """See EmbeddedServer.subscribe."""
        number = identity.client_id
        if type(number) is not int or number not in CLIENT_IDS:
            raise LocalProtocolError(
                f"client id {excerpt(repr(number))}: expected a whole number, {CLIENT_IDS[0]} to {CLIENT_IDS[-1]}"
            )

        async def work() -> None:
            initial = InitialSnapshot(snapshot, identity.filter)
            await self._running()[0].embedded.subscribe(identity, exact=self._exact, snapshot=initial)

        return self._call(work)

    def unsubscribe(self, identity: ClientIdentity) -> ReactorCall[None]:
        """See EmbeddedServer.unsubscribe."""
        return self._call(lambda: self._running()[0].embedded.unsubscribe(identity))

    def get(self, identity: ClientIdentity, batch_size: int, timeout_ms: int, *, eager: bool) -> ReactorCall[GetAnswer]:
        """See EmbeddedServer.get_without_ack. The answer is the node's; see client.message.message_of."""
        wait_ms = None if timeout_ms == WITHOUT_LIMIT_MS else float(max(timeout_ms, 0))
        request = GetRequest(batch_size if batch_size > 0 else DEFAULT_FETCH_SIZE, wait_ms, eager, self._exact)
        client = identity.key

        async def work() -> GetAnswer:
            embedded = self._running()[0].embedded
            if client in self._unheard:
                in_flight = await embedded.in_flight(identity)
                unheard = self._unheard[client] = [each for each in self._unheard[client] if each.batch_id in in_flight]
                if unheard:
                    return unheard.pop(0)
            return await embedded.get(identity, request)

        def keep(answer: GetAnswer) -> None:
            if answer.batch is not None:
                self._unheard[client].append(answer)

        return self._call(work, keep)

    def ack(self, identity: ClientIdentity, batch_id: int) -> ReactorCall[None]:
        """See EmbeddedServer.ack."""

        async def work() -> None:
            embedded = self._running()[0].embedded
            if batch_id != EMPTY_BATCH_ID:
                await embedded.ack(identity, batch_id)

        return self._call(work)

    def rollback(self, identity: ClientIdentity, batch_id: int) -> ReactorCall[None]:
        """See EmbeddedServer.rollback."""
        return self._call(lambda: self._running()[0].embedded.rollback(identity, batch_id))

    def list_batch_ids(self, identity: ClientIdentity) -> ReactorCall[tuple[int, ...]]:
        """See EmbeddedServer.list_batch_ids."""
        return self._call(lambda: self._running()[0].embedded.in_flight(identity))

    # ---- inside

    def _running(self) -> tuple[Node, CanalConfig]:
        if self._node is None or self._config is None:
            raise LocalProtocolError("start the embedded server first")
        return self._node, self._config

    def _call(
        self, work: Callable[[], Coroutine[Any, Any, T]], unheard: Callable[[T], None] | None = None
    ) -> ReactorCall[T]:
        if self._reactor is None or not self._reactor.running:
            raise LocalProtocolError("start the embedded server first")
        return ReactorCall(self._reactor, work, unheard)

    def _aside(self, call: Callable[[], T]) -> Awaitable[T]:
        """Make a call that reads files, on the reactor's pool."""
        from twisted.internet.threads import deferToThreadPool

        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), call)


async def _stop_serving() -> None:
    for each in tuple(_serving):
        await each._stop()


def _texts(settings: Settings) -> dict[str, str]:
    """Return settings as a properties file has them."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}
