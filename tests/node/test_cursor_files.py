"""The files of cursors are written while every thread of the reactor's pool waits for a source."""

from __future__ import annotations

import threading
from pathlib import Path

from twisted.internet.threads import deferToThread

from canal_ha.config.model import CanalConfig, CursorPlace, InstanceConfig, SourceConfig
from canal_ha.meta.batch_ids import BatchIds
from canal_ha.meta.repository import StartKept
from canal_ha.model.position import LogPosition
from canal_ha.node.assembly import Assembly
from canal_ha.node.instance_log import InstanceLog
from canal_ha.server.audit import Audit
from tests.server.harness import LOOPBACK, on_reactor, reactor

AT = LogPosition("mysql-bin.000001", 4)


def test_questions_to_a_source_that_hangs_stall_no_flush(tmp_path: Path) -> None:
    """More questions than the pool has threads wait; a cursor file is written all the same."""
    assembly = Assembly(CanalConfig(tmp_path, ()), reactor, InstanceLog(Audit(reactor)), BatchIds())
    config = InstanceConfig("example", SourceConfig(LOOPBACK), cursor_place=CursorPlace.FILE, data_dir=tmp_path)
    answered = threading.Event()

    async def flushed() -> LogPosition | None:
        for _ in range(reactor.getThreadPool().max + 1):
            deferToThread(answered.wait)
        backend = assembly.cursors(config)
        await backend.load()
        await backend.write((StartKept(AT),))
        return (await backend.load()).start

    try:
        assert on_reactor(flushed, timeout_s=5) == AT
    finally:
        answered.set()
        assembly.close()
