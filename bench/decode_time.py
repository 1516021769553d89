"""Decodes a dump for each line of its input, and prints the seconds of processor time of its thread.

    python -P bench/decode_time.py A=FILE C=FILE

FILE: a dump of the workload before it, from bench.kernel. A line of the input is the name of a workload. The packages
come from PYTHONPATH, so that one program measures the trees of two commits, a decoding of each in turns.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench import kernel
from canal_ha.decode.kernel import BUILD
from canal_ha.model.segment import Segment
from lab.dump import AnyTable, decoder


def seconds(parts: list[bytes], name: str) -> float:
    """Decode all parts once, and return the thread's time."""
    work = decoder(AnyTable(*kernel.columns(kernel.TABLES[name])))
    began = time.thread_time()
    for part in parts:
        for output in work.feed(part):
            if isinstance(output, Segment):
                output.recycle()
    return time.thread_time() - began


def main() -> int:
    """Answer until the input ends. Return 1 unless the kernel is compiled."""
    if BUILD != "compiled":
        print("the kernel is not compiled", file=sys.stderr)
        return 1
    dumps = {}
    for argument in sys.argv[1:]:
        name, _, file = argument.partition("=")
        data = Path(file).read_bytes()
        dumps[name] = [data[at : at + kernel.CHUNK] for at in range(0, len(data), kernel.CHUNK)]
    for line in sys.stdin:
        print(seconds(dumps[line.strip()], line.strip()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
