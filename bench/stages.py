"""Measures what bounds one destination: the processor time of each stage, and decoder threads on one core and on two.

    python -m bench.stages [A B]

A MariaDB server writes the workload. The stages are those of a node while a client counts: the threads that receive,
decode and store, and the main thread, which serves. Then threads decode the bytes of the recorded journals, each all of
them, on as many cores as `taskset` leaves.

Other programs may use the cores, so a thread's time has three parts, as Linux counts them: on a core, waiting for a
core, and the rest, which is waiting for the lock of the interpreter. Threads that never wait for the lock do the work
of as many cores as there are.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import kernel, measure, workloads
from bench.suite import CLIENT_ID, COUNT, DESTINATION, settings
from bench.workloads import Written
from canal_ha.model.segment import Segment
from lab.dump import AnyTable, decoder, packets
from lab.mysql import SqlServer
from lab.node import Node

ROWS = {"A": 400_000, "B": 60_000}
BATCH_KB = 1000
ROUNDS = 3
MAGIC_BYTES = 4  # of a journal's file, before its first event


def events(journal: bytes) -> Iterator[bytes]:
    """Split a journal's file into its events."""
    at = MAGIC_BYTES
    while at < len(journal):
        size = int.from_bytes(journal[at + 9 : at + 13], "little")
        yield journal[at : at + size]
        at += size


def scheduled(path: str) -> tuple[float, float]:
    """Return a thread's seconds on a core and waiting for one. path: its directory in /proc."""
    on_core, waiting, _ = Path(path, "schedstat").read_text().split()
    return int(on_core) / 1e9, int(waiting) / 1e9


def decode(file: str, threads: int) -> list[tuple[float, float, float, float]]:
    """Decode all events of a file in each of some threads at once.

    Return a tuple for each thread: seconds in all, on a core, waiting for a core, waiting for the lock.
    """
    data = Path(file).read_bytes()
    parts = [data[at : at + kernel.CHUNK] for at in range(0, len(data), kernel.CHUNK)]
    start = threading.Barrier(threads)
    took: list[tuple[float, float, float, float]] = []

    def run() -> None:
        work = decoder(AnyTable(*kernel.columns(kernel.SBTEST)))
        me = f"/proc/self/task/{threading.get_native_id()}"
        start.wait()
        began, before = time.perf_counter(), scheduled(me)
        for part in parts:
            for output in work.feed(part):
                if isinstance(output, Segment):
                    output.recycle()
        seconds, after = time.perf_counter() - began, scheduled(me)
        on_core, waiting = (then - now for now, then in zip(before, after, strict=True))
        took.append((seconds, on_core, waiting, max(seconds - on_core - waiting, 0.0)))

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return took


def thread_seconds(pid: int) -> dict[bool, float]:
    """Return the time on a core of a process's main thread (True) and of its other threads together (False)."""
    found = {True: 0.0, False: 0.0}
    for task in Path(f"/proc/{pid}/task").iterdir():
        found[int(task.name) == pid] += scheduled(str(task))[0]
    return found


def stages(server: SqlServer, written: Written) -> dict[bool, float]:
    """Return the node's nanoseconds a row, by thread as in `thread_seconds`, while a client counts."""
    with Node({DESTINATION: settings(server, written)}) as node:
        before = thread_seconds(node.pid)
        measure.run_reader(measure.python(COUNT, node.address, DESTINATION, CLIENT_ID, written.rows, BATCH_KB))
        after = thread_seconds(node.pid)
    return {main: (after[main] - before[main]) * 1e9 / written.rows for main in after}


def in_new_process(file: str, threads: int, cores: int) -> list[tuple[float, float, float, float]]:
    """Decode in a process that has some of our cores."""
    mine = ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores]))
    done = subprocess.run(
        ["taskset", "--cpu-list", mine, sys.executable, "-m", "bench.stages", "--decode", file, str(threads)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [(each[0], each[1], each[2], each[3]) for each in json.loads(done.stdout)]


def show_threads(file: str, rows: int) -> None:
    """Print medians of the rounds: threads, cores, and where the time of a row goes."""
    shapes = [(threads, cores) for cores in (1, 2) for threads in (1, 2) if cores <= len(os.sched_getaffinity(0))]
    known: dict[tuple[int, int], list[tuple[float, ...]]] = {shape: [] for shape in shapes}
    for _ in range(ROUNDS):
        for shape, taken in known.items():
            each = in_new_process(file, *shape)
            taken.append(tuple(statistics.mean(part) * 1e9 / rows for part in zip(*each, strict=True)))
    print(f"{'threads':>8}{'cores':>7}{'in all':>10}{'on a core':>11}{'for a core':>12}{'for the lock':>14}   ns a row")
    for (threads, cores), taken in known.items():
        in_all, on_core, for_core, for_lock = (statistics.median(part) for part in zip(*taken, strict=True))
        print(
            f"{threads:>8}{cores:>7}{in_all:>10,.0f}{on_core:>11,.0f}{for_core:>12,.0f}{for_lock:>14,.0f}", flush=True
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the workloads and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="A or B; default both")
    parser.add_argument("--decode", nargs=2, metavar=("FILE", "THREADS"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.decode:
        print(json.dumps(decode(chosen.decode[0], int(chosen.decode[1]))))
        return 0
    with workloads.server("mariadb") as server, tempfile.NamedTemporaryFile() as file:
        for name in chosen.workloads or ROWS:
            written = workloads.write(server, name, ROWS[name])
            each = [stages(server, written) for _ in range(ROUNDS)]
            receive, serve = (statistics.median(took[main] for took in each) for main in (False, True))
            print(f"\n{name}: ns a row of the node: receive, decode and store {receive:,.0f}; serve {serve:,.0f}")
            recorded = b"".join(
                packets(event) for journal in written.journals for event in events((server.data / journal).read_bytes())
            )
            Path(file.name).write_bytes(recorded)
            show_threads(file.name, written.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
