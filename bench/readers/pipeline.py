"""Runs a pipeline's file on the embedded engine until its target has a number of rows, and prints one JSON object.

    python -m bench.readers.pipeline FILE ROWS

rows, seconds and cpu_s from the start of the engine to the commit with the last row; commits; memory_bytes: the peak of
this process. The start of Python and the loading of the target's libraries are not counted.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from pathlib import Path

from canal_ha.errors import CanalError
from canal_ha.pipeline.description import load
from canal_ha.pipeline.engine import PipelineEngine
from canal_ha.pipeline.targets import open_target

LOOK_S = 0.005


def main() -> int:
    """Read the command line, run, print."""
    file, wanted = Path(sys.argv[1]), int(sys.argv[2])
    description = load(file, "embedded")
    engine = PipelineEngine(description, open_target(description))
    failed: list[CanalError] = []

    def run() -> None:
        try:
            engine.run()
        except CanalError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    began, used = time.perf_counter(), time.process_time()
    thread.start()
    while thread.is_alive() and sum(state.rows for state in engine.states) < wanted:
        time.sleep(LOOK_S)
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - used
    states = engine.states
    engine.stop()
    thread.join()
    if failed:
        sys.exit(str(failed[0]))
    figures = {
        "rows": sum(state.rows for state in states),
        "seconds": seconds,
        "cpu_s": cpu_s,
        "commits": sum(state.commits for state in states),
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
