"""Runs pipelines into one target, and kills them, the node or the target's server at random moments."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

from lab.exactly_once.changes import Verdict, judged, written
from lab.exactly_once.places import SCHEMA, place
from lab.mysql import MySQL
from lab.node import PROGRAM, Node, follow
from lab.process import Process, spawn
from lab.waiting import until

VICTIMS = ("pipeline", "node", "server")
ENDS_S = 180.0  # for the run that writes what is left


class RunningPipeline:
    """`canal-ha pipeline run FILE` in a process."""

    def __init__(self, file: Path, *more: str) -> None:
        self._log = file.with_suffix(".log")
        self._begin = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as output:
            self._process = spawn([PROGRAM, "pipeline", "run", str(file), *more], stdout=output, stderr=output)

    def wait_active(self) -> None:
        """Wait until it reads: it ends if its target or its node does not answer when it starts."""
        until(lambda: b"pipeline.active" in self._log.read_bytes()[self._begin :], what="the pipeline", seconds=ENDS_S)

    def kill(self) -> None:
        """Send SIGKILL. Raises AssertionError if it has ended before."""
        assert self._process.poll() is None, f"the pipeline has ended\n{self._log.read_text()[-4000:]}"
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Wait for its orderly end. Raises AssertionError."""
        try:
            code = self._process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = None
        assert code == 0, f"the pipeline ended with {code}\n{self._log.read_text()[-4000:]}"


def run(kind: str, victims: Sequence[str], kills: int, seed: int, show: Callable[[Verdict], None]) -> None:
    """Kill each victim of one target, and compare. Raises AssertionError if a pipeline ends by itself.

    kind: of the target.
    victims: of VICTIMS; a target without a server has none to kill.
    kills: of each victim.
    seed: of the changes and the moments.
    show: gets each verdict.
    """
    random = Random(f"{seed} {kind}")
    with tempfile.TemporaryDirectory(prefix="canal-ha-kills-") as name, ExitStack() as stack:
        directory = Path(name)
        origin = stack.enter_context(MySQL())
        origin.execute(f"CREATE DATABASE {SCHEMA}")
        node = stack.enter_context(Node({SCHEMA: follow(origin)}))
        there = place(kind, directory, stack)
        for client_id, victim in enumerate(victims, 1001):
            if victim == "server" and there.server is None:
                continue
            table = f"t_{victim}"
            origin.execute(f"CREATE TABLE {SCHEMA}.{table} (id INT PRIMARY KEY, v INT)")
            file = directory / f"{table}.yaml"
            given = {"servers": node.address, "destination": SCHEMA, "clientId": client_id, "fetchSize": 16}
            body = {"name": table, "engine": "embedded", "state": f"{directory}/{table}", "source": given}
            file.write_text(json.dumps({**body, "tables": [f"{SCHEMA}.{table}"], "target": dict(there.options(table))}))
            RunningPipeline(file, "--once").end()  # the client id begins here
            with written(origin, f"{SCHEMA}.{table}", random) as changes:
                pipeline = RunningPipeline(file)
                for _ in range(kills):
                    pipeline.wait_active()
                    time.sleep(random.uniform(1.5, 4.5))
                    if victim == "pipeline":
                        pipeline.kill()
                        pipeline = RunningPipeline(file)
                    else:
                        killed: Process = node if victim == "node" else there.server or node
                        killed.kill()
                        time.sleep(random.uniform(0, 0.5))
                        killed.start()
                time.sleep(random.uniform(1.5, 4.5))
            pipeline.kill()
            RunningPipeline(file, "--once").end()
            show(judged(kind, victim, kills, changes, there.changes(table), ordered=there.ordered))
