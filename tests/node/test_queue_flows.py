"""A destination that writes to Kafka has a flow exactly while its instance runs, and never two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from canal_ha.config.model import CanalConfig, InstanceConfig, QueueConfig, SourceConfig
from canal_ha.instance.embedded import Embedded
from canal_ha.instance.instance import Instance
from canal_ha.meta.repository import Snapshot
from canal_ha.node.hosting import Hosting
from canal_ha.server.audit import Audit
from tests.instance.test_embedded import ClosingOrigin, OneThread, SlowBackend, slow_instance

REFUSED = {"servers": "localhost:1", "topic": "t", "properties": {"security.protocol": "none"}}
CONFIG = InstanceConfig("example", SourceConfig("127.0.0.1"), queue=QueueConfig("canal", REFUSED))


class SlowAssembly:
    """Makes instances whose cursors load when the test says so."""

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded
        self.backends: list[SlowBackend] = []

    def alone(self, config: InstanceConfig, gave_up: object) -> Instance:
        """See Assembly."""
        backend = SlowBackend()
        self.backends.append(backend)
        return slow_instance(config, ClosingOrigin(), backend, self._embedded.batch_ids)


class SlowHosting(Hosting):
    """Hosts `example`. Kafka refuses its flows, so each waits for another attempt."""

    def __init__(self, directory: Path) -> None:
        self.clock, embedded = OneThread(), Embedded()
        super().__init__(CanalConfig(directory, ()), self.clock, embedded, Audit(self.clock, lambda line: None))
        self.configured["example"] = CONFIG
        self._assembly: Any = SlowAssembly(embedded)

    def load(self) -> None:
        """Let the cursors of the newest instance load."""
        self._assembly.backends[-1].loading.callback(Snapshot())

    @property
    def flows(self) -> int:
        """How many flows wait for another attempt."""
        return sum(getattr(call.func, "__name__", "") == "begin" for call in self.clock.getDelayedCalls())


@pytest.fixture
def hosting(tmp_path: Path) -> SlowHosting:
    return SlowHosting(tmp_path)


def test_a_stop_during_a_start_leaves_no_flow(hosting: SlowHosting) -> None:
    """The next start makes the only one."""
    started = Deferred.fromCoroutine(hosting.start_alone("example"))
    stopped = Deferred.fromCoroutine(hosting.stop_alone("example"))
    hosting.load()
    assert (started.called, stopped.called, hosting.runs("example")) == (True, True, False)
    assert (hosting.flows, hosting.queues.status("example")) == (0, None)
    Deferred.fromCoroutine(hosting.start_alone("example"))
    hosting.load()
    assert hosting.runs("example")
    assert hosting.flows == 1


def test_a_second_flow_ends_the_first(hosting: SlowHosting) -> None:
    """Two flows of one client id would take rows from each other."""
    for _ in range(2):
        hosting.queues.start(CONFIG)
        assert hosting.flows == 1
