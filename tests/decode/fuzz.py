"""Damaged dumps for this process's kernel: each must give entries or one of our errors, and nothing else.

With each dump come a damaged JSON document, and damaged rows of a SELECT: they must give a text, and events, or one of
our errors.

deploy/fuzz.sh runs this module as a program, with the compiled kernel under AddressSanitizer. The generated dumps have
no checksums, so that the kernel reads the damaged bytes. The seed and its number determine each input. Arguments: seed,
first number, count.
"""

from __future__ import annotations

import random
import sys
import time
from contextlib import suppress
from typing import Any

from canal_ha.decode import kernel
from canal_ha.decode.filters import FieldFilter
from canal_ha.decode.kernel.documents import document_text
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.decode.plans import Columns
from canal_ha.errors import MalformedEvent, TableUnknown
from lab.dump import AnyTable, decoder
from tests.compat import mutations
from tests.decode import documents, result_sets
from tests.decode.vectors import generated, with_gtids

FROM_ONE_DUMP = 50  # inputs; making a dump takes longer than reading it
RECORDED = 200  # one input in this many is a damaged recording of a real server
SAY_S = 30
LENGTHS = (
    b"\0",
    b"\xff",
    b"\xff\xff",
    b"\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x7f",
    b"\x80",
    b"\xfc\xff\xff",
    b"\xfb",
)


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Return the data with a few bytes changed, removed, doubled or copied from another place."""
    raw = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at = chance.randrange(len(raw))
        what = chance.randrange(8)
        if what < 3:
            raw[at] = chance.randrange(256)
        elif what == 3:
            raw[at] ^= 1 << chance.randrange(8)
        elif what == 4:
            value = chance.choice(LENGTHS)
            raw[at : at + len(value)] = value
        elif what == 5:
            del raw[at : at + chance.choice((1, 2, 4, 100))]
        elif what == 6:
            raw[at:at] = raw[at : at + chance.choice((1, 2, 4, 100))]
        else:
            start = chance.randrange(len(raw))
            piece = raw[start : start + chance.choice((1, 4, 19, 60))]
            raw[at : at + len(piece)] = piece
        if not raw:
            return b"\0"
    return bytes(raw)


def run(seed: int, first: int, count: int) -> None:
    """Decode damaged inputs; raise any exception that is not one of our errors."""
    said = time.monotonic()
    for number in range(first, first + count):
        if number % FROM_ONE_DUMP == 0 or number == first:
            source = random.Random(f"{seed} {number // FROM_ONE_DUMP}")
            data, columns, skipped = generated(source, checksums=0.0)
            tables: dict[Any, Columns] = {}
        chance = random.Random(f"{seed} {number} damage")
        try:
            with suppress(Broken):
                document_text(damaged(chance, documents.drawn(chance)))
            with suppress(Broken):
                rows, writer = result_sets.drawn(chance)
                writer.events(damaged(chance, rows), (), bytes(19), 100, bytearray())
            if number % RECORDED == 0:
                case = mutations.draw_case(chance)
                made = mutations.mutate(chance, case)
                mutations.decode(case, made.events, as_packets=made.as_packets, cut=made.cut)
            else:
                raw = damaged(chance, data)
                at = chance.randrange(len(raw) + 1)
                fields = FieldFilter("", skipped)
                work = decoder(AnyTable(*columns), fields=fields, **with_gtids(number % 2 == 1))
                work._plans._younger = tables  # kept for the inputs of one dump: cells take longer to make than to read
                with suppress(MalformedEvent, TableUnknown):
                    for part in (raw[:at], raw[at:]):
                        for _ in work.feed(part):
                            pass
        except BaseException:
            print(f"seed {seed}, input {number}", flush=True)
            raise
        if time.monotonic() - said > SAY_S:
            said = time.monotonic()
            print(f"{number - first + 1:,} of {count:,} inputs", flush=True)
    print(f"{count:,} damaged inputs, {kernel.BUILD} kernel, seed {seed}: nothing found")


if __name__ == "__main__":
    run(*map(int, sys.argv[1:]))
