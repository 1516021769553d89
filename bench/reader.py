"""Measures rows per second of the kernel's reader alone, in memory and on one core.

It reads entries to Arrow record batches, and to Python rows of which every value is used: interpreted, compiled, and
with protobuf's own objects.

The workloads are those of bench.kernel, decoded. Each round is a new process. Rounds are interleaved, and figures are
medians. No database or network is involved.

    python -m bench.reader [A ...]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from bench import kernel
from canal_ha.client.arrow import Pages, arrow_message
from canal_ha.client.message import Message
from canal_ha.client.rows import rows_of, value_of
from canal_ha.model.segment import Segment
from canal_ha.wire.messages import Fetched
from canal_ha.wire.proto.entry_protocol_pb2 import ROWDATA, RowChange
from lab.dump import AnyTable, decoder

SHARE = 20  # the slower readers get this many times fewer rows
PAGES = Pages.kept(None, "UTC")
BATCH = 4 << 20  # approximate bytes of entries in a batch


def batches(name: str, rows: int) -> list[bytes]:
    """Return frames of this many rows, in batches like those of GETs."""
    work = decoder(AnyTable(*kernel.columns(kernel.TABLES[name])))
    found = [b""]
    for output in work.feed(kernel.workload(name, rows)):
        if isinstance(output, Segment):
            if len(found[-1]) > BATCH:
                found.append(b"")
            found[-1] += bytes(output.frames)
    return found


def arrow(frames: bytes) -> int:
    """Build record batches like a connector; return the number of rows."""
    return sum(batch.rows.num_rows for batch in arrow_message(Message(Fetched(1, frames)), "UTC", PAGES).batches)


def rows(frames: bytes) -> int:
    """Use every value of every row."""
    count = nulls = 0
    for row in rows_of(Message(Fetched(1, frames))):
        for side in (row.before, row.after):
            if side is not None:
                nulls += sum(value is None for value in side.values())
        count += 1
    return count


def protobuf(frames: bytes) -> int:
    """Use every value of every row, read with protobuf's objects."""
    count = nulls = 0
    for entry in Message(Fetched(1, frames)).entries:
        if entry.entryType != ROWDATA:
            continue
        for row in RowChange.FromString(entry.storeValue).rowDatas:
            for columns in (row.beforeColumns, row.afterColumns):
                side = {column.name: value_of(column) for column in columns}
                nulls += sum(value is None for value in side.values())
            count += 1
    return count


READERS: dict[str, tuple[str, Callable[[bytes], int]]] = {  # kernel's build, reader
    "Arrow, interpreted": ("off", arrow),
    "Arrow, compiled": ("require", arrow),
    "rows, interpreted": ("off", rows),
    "rows, compiled": ("require", rows),
    "protobuf": ("require", protobuf),
}


def measure(reader: str, file: str) -> float:
    """Return rows per second of processor time."""
    with open(file, "rb") as opened:
        data = opened.read()
    read = READERS[reader][1]
    parts = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        parts.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    read(parts[0])  # excludes work of the first call
    began = time.process_time()
    count = sum(map(read, parts))
    return count / (time.process_time() - began)


def compare(name: str, count: int, times: int) -> None:
    """Measure all readers in turns and print a line."""
    rates: dict[str, list[float]] = {reader: [] for reader in READERS}
    with tempfile.TemporaryDirectory() as directory:
        for share, file in ((SHARE, f"{directory}/few"), (1, f"{directory}/many")):
            with open(file, "wb") as opened:
                for part in batches(name, max(count // share, 500)):
                    opened.write(len(part).to_bytes(8, "little") + part)
        for _ in range(times):
            for reader, (build, _) in READERS.items():
                own = file if build != "off" else f"{directory}/few"
                done = subprocess.run(
                    [sys.executable, "-m", "bench.reader", "--measure", own, reader],
                    env={**os.environ, "CANAL_HA_KERNEL": build},
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
                rates[reader].append(json.loads(done.stdout))
    print(f"{name}  " + "".join(f"{statistics.median(known):>20,.0f}" for known in rates.values()), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run the rounds, print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="A to E; default all of them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=0.4, help="factor for the number of rows")
    parser.add_argument("--measure", metavar="FILE", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.measure:
        print(json.dumps(measure(chosen.workloads[0], chosen.measure)))
        return 0
    print(f"{'rows/s':<3}" + "".join(f"{reader:>20}" for reader in READERS)[3:])
    for name in chosen.workloads or kernel.TABLES:
        compare(name, int(kernel.ROWS[name] * chosen.scale), chosen.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
