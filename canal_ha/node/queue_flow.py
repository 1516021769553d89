"""QueueFlow: the flow of one destination into Kafka. Reactor thread; the flow has a thread of its own.

Only a node with canal.serverMode = kafka imports this module: it needs the libraries of pipelines.
"""

from __future__ import annotations

from threading import Thread
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall

from canal_ha.config.model import InstanceConfig, QueueConfig
from canal_ha.errors import CanalError
from canal_ha.instance.embedded import Embedded
from canal_ha.instance.status import QueueStatus
from canal_ha.model.identity import ClientIdentity
from canal_ha.node.instance_log import InstanceLog
from canal_ha.node.lasting import LastingWait
from canal_ha.node.own_client import OwnSource
from canal_ha.pipeline import options
from canal_ha.pipeline.flow import Flow
from canal_ha.pipeline.queue import described, opened
from canal_ha.pipeline.targets.target import PipelineTarget, wants_exact

CLIENT_ID = 1001  # as canal's
AGAIN_S = 10.0  # after an error that a person has to mend
LOOK_S = 5.0  # between looks at what it waits for


class QueueFlow:
    """The flow of one destination. It begins again after errors. client_id: whose rows it takes."""

    client_id = CLIENT_ID

    def __init__(
        self, config: InstanceConfig, queue: QueueConfig, reactor: Any, embedded: Embedded, log: InstanceLog
    ) -> None:
        self._destination = config.destination
        self._description = described(config, queue)
        self._options = options.parse(
            {
                "servers": "localhost:0",  # no node is asked: OwnSource answers
                "destination": config.destination,
                "clientId": str(CLIENT_ID),
                "fetchSize": str(queue.fetch_size),
                "failOnDataLoss": str(queue.fail_on_data_loss).lower(),
            }
        )
        self._servers: str = queue.options["servers"]
        self._reactor = reactor
        self._embedded = embedded
        self._log = log
        self._target: PipelineTarget | None = None
        self._flow: Flow | None = None
        self._again: Any = None  # IDelayedCall
        self._error = ""
        self._wait = LastingWait()
        self._looks = LoopingCall(self._look)
        self._looks.clock = reactor
        self._ending = False

    def begin(self) -> None:
        """Start the flow."""
        self._again = None
        if not self._looks.running:
            self._looks.start(LOOK_S)
        try:
            self._target = target = opened(self._description)
        except CanalError as error:
            self._failed(error)
            return
        identity = ClientIdentity(self._destination, CLIENT_ID)
        source = OwnSource(self._embedded, self._reactor, identity, exact=wants_exact(target))
        self._flow = Flow(
            self._description,
            self._options,
            source,
            target,
            ended=lambda: self._reactor.callFromThread(self._ended),
            works=lambda: self._reactor.callFromThread(self._works),
        )
        self._flow.start()

    def end(self) -> Deferred[None]:
        """Stop the flow after the transaction that is being committed. Fires when Kafka's producer is closed."""
        self._ending = True
        if self._looks.running:
            self._looks.stop()
        if self._again is not None:
            self._again.cancel()
        if self._flow is not None:
            self._flow.stop()
        self._log.event(self._destination, "queue.ended")
        return self._closed(self._flow, self._target)

    def status(self) -> QueueStatus:
        """Return the figures of this moment."""
        state = self._flow.state if self._flow else None
        if state is None:
            return QueueStatus(self._servers, error=self._error)
        return QueueStatus(
            servers=self._servers,
            position=state.progress.last if state.progress and state.progress.last.journal else None,
            commits=state.commits,
            rows=state.rows,
            lag_s=state.lag_s,
            waits_for=state.waiting or ("" if state.progress else "the first answer of Kafka"),
            error=self._error,
        )

    def _look(self) -> None:
        """Begin the alarm of a wait that lasts, and end it with the wait."""
        status = self.status()
        if self._wait.tells(status.waits_for, self._reactor.seconds()):
            text = f"Kafka at {self._servers} does not get the changes: the node waits for {status.waits_for}"
            self._log.event(self._destination, "queue.waiting", error=text, alarm=True)
        elif self._wait.told and not (status.waits_for or status.error):
            self._works()

    def _works(self) -> None:
        if not self._ending:
            self._error, self._wait = "", LastingWait()
            self._log.event(self._destination, "queue.active", servers=self._servers)

    def _ended(self) -> None:
        flow, error = self._flow, self._flow.error if self._flow else None
        if self._ending or flow is None or error is None:
            return
        target, self._flow, self._target = self._target, None, None
        self._closed(flow, target)
        self._failed(error)

    def _closed(self, flow: Flow | None, target: PipelineTarget | None) -> Deferred[None]:
        """Wait for the end of a flow and close its target, on a thread that does not delay the end of the process."""
        done: Deferred[None] = Deferred()

        def close() -> None:
            if flow is not None:
                flow.join()
            if target is not None:
                target.close()
            self._reactor.callFromThread(done.callback, None)

        Thread(target=close, name=f"queue-{self._destination}", daemon=True).start()
        return done

    def _failed(self, error: CanalError) -> None:
        self._error = str(error)
        self._log.event(self._destination, "queue.failed", error=self._error, again_in_s=AGAIN_S, alarm=True)
        self._again = self._reactor.callLater(AGAIN_S, self.begin)
