"""Measures rows per second of the kernel alone, in memory and on one core, interpreted and compiled.

The script generates the workloads as dumps with checksums. Each round is a new process that decodes one dump. Rounds
are interleaved, and figures are medians. No database or network is involved.

A  transactions of 1,000 rows (id int, k int, c char(120), pad char(60)), 42 rows an event
B  transactions of one such row
C  rows of 200 columns of mixed types, a fifth of them NULL
D  updates of one column in rows of 100 columns
E  rows of a blob of 1 KB of any bytes, and a JSON document
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from canal_ha.decode import types
from canal_ha.decode.kernel import kinds
from canal_ha.model.segment import Segment
from canal_ha.model.table import Column
from lab.column_kinds import json_bytes, random_decimal
from lab.dump import AnyTable, ColumnType, Dump, decoder, packed, table_map

CHUNK = 262_144  # bytes a call, as in the source
SHARE = 100  # the interpreted build gets this many times fewer rows

Table = tuple[tuple[ColumnType, str], ...]
SBTEST: Table = (
    (ColumnType(types.LONG), "int"),
    (ColumnType(types.LONG), "int"),
    (ColumnType(types.STRING, b"\xee\xe0"), "char(120)"),
    (ColumnType(types.STRING, b"\xfe\xf0"), "char(60)"),
)
MIXED: Table = (
    (ColumnType(types.LONG), "int"),
    (ColumnType(types.LONGLONG), "bigint unsigned"),
    (ColumnType(types.TINY), "tinyint"),
    (ColumnType(types.VARCHAR, b"\x90\x01"), "varchar(100)"),
    (ColumnType(types.NEWDECIMAL, b"\x0e\x04"), "decimal(14,4)"),
    (ColumnType(types.DATETIME2, b"\0"), "datetime"),
    (ColumnType(types.TIMESTAMP2, b"\6"), "timestamp(6)"),
    (ColumnType(types.DOUBLE, b"\x08"), "double"),
    (ColumnType(types.DATE), "date"),
    (ColumnType(types.STRING, b"\xf7\x01"), "enum('a','b')"),
)
CELLS: tuple[Callable[[random.Random], bytes], ...] = (  # of MIXED
    lambda chance: struct.pack("<i", chance.randrange(-(10**6), 10**6)),
    lambda chance: struct.pack("<Q", chance.randrange(10**12)),
    lambda chance: chance.randbytes(1),
    lambda chance: struct.pack("<H", 30) + (b"text %025d" % chance.randrange(10**9)),
    lambda chance: random_decimal(chance, 14, 4),
    lambda chance: datetime2(chance),
    lambda chance: struct.pack(">I", chance.randrange(1_700_000_000, 1_700_900_000)) + b"\1\2\3",
    lambda chance: struct.pack("<d", chance.randrange(10**8) / 100 if chance.random() < 0.7 else chance.gauss(0, 1)),
    lambda chance: (2026 << 9 | 11 << 5 | chance.randrange(1, 29)).to_bytes(3, "little"),
    lambda chance: bytes([chance.randrange(1, 3)]),
)
BLOBS: Table = (
    (ColumnType(types.LONG), "int"),
    (ColumnType(types.BLOB, b"\2"), "blob"),
    (ColumnType(types.JSON, b"\4"), "json"),
)
TABLES = {"A": SBTEST, "B": SBTEST, "C": MIXED * 20, "D": MIXED * 10, "E": BLOBS}
ROWS = {"A": 500_000, "B": 100_000, "C": 20_000, "D": 20_000, "E": 50_000}
IN_EVENT = {"A": 42, "B": 1, "C": 5, "D": 5, "E": 7}
IN_TRANSACTION = {"A": 1000, "B": 1, "C": 1000, "D": 1000, "E": 1000}


def datetime2(chance: random.Random) -> bytes:
    """Return a random second of November 2026."""
    day = (2026 * 13 + 11) << 5 | chance.randrange(1, 31)
    time = chance.randrange(24) << 12 | chance.randrange(60) << 6 | chance.randrange(60)
    return (1 << 39 | day << 17 | time).to_bytes(5, "big")


def columns(table: Table) -> list[Column]:
    return [
        Column(f"c{index}", text, key=index == 0, unsigned="unsigned" in text) for index, (_, text) in enumerate(table)
    ]


def sbtest_row(chance: random.Random) -> bytes:
    digits = b"-".join(b"%011d" % chance.randrange(10**11) for _ in range(15))
    return (
        b"\xf0"
        + struct.pack("<ii", chance.randrange(10**7), chance.randrange(10**6))
        + (struct.pack("<H", 119) + digits[:119] + b"\x3b" + digits[120:])
    )


def mixed_row(chance: random.Random, width: int, changed: bool) -> bytes:
    """Build a row of MIXED columns. changed: two images that differ in the first column."""
    nulls = sum(1 << index for index in range(1, width) if chance.random() < 0.2)
    bitmap = nulls.to_bytes((width + 7) // 8, "little")
    values = [CELLS[index % len(CELLS)](chance) for index in range(width) if not nulls >> index & 1]
    before = bitmap + b"".join(values)
    if not changed:
        return before
    return before + bitmap + b"".join([CELLS[0](chance), *values[1:]])


def blob_row(chance: random.Random) -> bytes:
    document = json_bytes({"name": "x" * 20, "tags": ["a", "b", 1, 2.5], "more": {"id": chance.randrange(10**9)}})
    return (
        b"\xf8"
        + struct.pack("<iH", chance.randrange(10**7), 1024)
        + chance.randbytes(1024)
        + struct.pack("<I", len(document))
        + document
    )


def row_maker(name: str) -> Callable[[random.Random], bytes]:
    if name in "AB":
        return sbtest_row
    if name == "E":
        return blob_row
    return lambda chance: mixed_row(chance, len(TABLES[name]), name == "D")


def workload(name: str, rows: int) -> bytes:
    """Build a dump of this many rows, which repeats a few thousand different ones."""
    chance = random.Random(name)
    make = row_maker(name)
    pool = [make(chance) for _ in range(min(rows, 2000 if name in "AB" else 200))]
    table = TABLES[name]
    body = table_map(1, "bench", "sbtest", [column for column, _ in table])
    kind = 31 if name == "D" else 30
    bitmap = b"\xff" * ((len(table) + 7) // 8) * (2 if kind == 31 else 1)
    head = struct.pack("<Q", 1)[:6] + b"\1\0\2\0" + packed(len(table)) + bitmap
    dump = Dump().format()
    done = 0
    while done < rows:
        gtid = b"\0" * 17 + struct.pack("<Q", done + 1) + b"\2" + struct.pack("<QQ", done, done + 1)
        dump.add(kinds.GTID, gtid).begin().add(kinds.TABLE_MAP, body)
        stop = min(done + IN_TRANSACTION[name], rows)
        while done < stop:
            count = min(IN_EVENT[name], stop - done)
            dump.add(kind, head + b"".join(pool[(done + index) % len(pool)] for index in range(count)))
            done += count
        dump.xid(done)
    return bytes(dump.data)


def measure(name: str, file: str) -> tuple[int, float]:
    """Decode a dump; return rows and seconds of processor time."""
    with open(file, "rb") as opened:
        data = opened.read()
    parts = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
    work = decoder(AnyTable(*columns(TABLES[name])))
    began = time.process_time()
    rows = 0
    for part in parts:
        for output in work.feed(part):
            if isinstance(output, Segment):
                rows += output.row_ends[-1]
                output.recycle()  # as a ring does after an acknowledgement
    return rows, time.process_time() - began


def rounds(name: str, build: str, file: str) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "bench.kernel", "--measure", file, name],
        env={**os.environ, "CANAL_HA_KERNEL": build},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    count, seconds = json.loads(done.stdout)
    return float(count / seconds)


def compare(name: str, rows: int, times: int) -> float:
    """Measure both builds in turns and print a line; return the compiled rate divided by the interpreted one."""
    rates: dict[str, list[float]] = {"off": [], "require": []}
    with tempfile.TemporaryDirectory() as directory:
        files: dict[str, str] = {}
        for build, count in (("off", max(rows // SHARE, 500)), ("require", rows)):
            files[build] = f"{directory}/{build}"
            data = workload(name, count)
            with open(files[build], "wb") as opened:
                opened.write(data)
        for _ in range(times):
            for build, known in rates.items():
                known.append(rounds(name, build, files[build]))
    slow, fast = (statistics.median(known) for known in rates.values())
    megabytes = len(data) / rows * fast / 1e6
    print(f"{name}  {slow:>12,.0f}{fast:>14,.0f}{fast / slow:>8.0f}{1e9 / fast:>12,.0f}{megabytes:>8,.0f}", flush=True)
    return fast / slow


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run the rounds, print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="A to E; default all of them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of rows")
    parser.add_argument(
        "--at-least", type=float, default=0.0, help="fail if the compiled build is not this many times faster"
    )
    parser.add_argument("--measure", metavar="FILE", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.measure:
        print(json.dumps(measure(chosen.workloads[0], chosen.measure)))
        return 0
    print(f"{'rows/s':<3}{'interpreted':>12}{'compiled':>14}{'ratio':>8}{'ns a row':>12}{'MB/s':>8}")
    ratios = [compare(name, int(ROWS[name] * chosen.scale), chosen.rounds) for name in chosen.workloads or TABLES]
    return 0 if min(ratios) >= chosen.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
