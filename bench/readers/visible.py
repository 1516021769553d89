"""Records when the target of a pipeline has each row of bench/paced.py: monotonic nanoseconds by id, in a file.

    python -m bench.readers.visible PIPELINE ROWS FILE

A row is visible when the commit with it has returned. Ids are read behind that.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from array import array

from canal_ha.pipeline.description import load
from canal_ha.pipeline.engine import PipelineEngine
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.targets import open_target

LOOK_S = 0.01


def main() -> None:
    """Read the command line, and record until the last row."""
    file, rows, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    description = load(file, "embedded")
    target = open_target(description)
    committed, visible = target.commit, array("q", bytes(8 * (rows + 1)))

    def commit(portion: Portion) -> None:
        committed(portion)
        now = time.monotonic_ns()
        for batch in portion.batches():
            for number in batch.rows.column(0).to_pylist():
                visible[number] = now

    target.commit = commit  # type: ignore[method-assign]
    engine = PipelineEngine(description, target)
    thread = threading.Thread(target=engine.run)
    thread.start()
    while thread.is_alive() and not visible[rows]:
        time.sleep(LOOK_S)
    engine.stop()
    thread.join()
    with open(out, "wb") as stream:
        visible.tofile(stream)
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
