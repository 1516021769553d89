"""Damaged entries for this process's readers, which must refuse each one or read it as protobuf reads it.

deploy/fuzz.sh runs this module as a program, with the compiled kernel under AddressSanitizer. The seed and its number
determine each input. Arguments: seed, first number, count.
"""

from __future__ import annotations

import random
import sys
from contextlib import suppress

from fastavro.schema import SchemaParseException

from canal_ha.decode import kernel
from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.changes import Sheet, TableRows
from canal_ha.decode.kernel.columns import Target
from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.errors import CanalError, SinkRefused
from canal_ha.pipeline.messages.avro import Avro
from canal_ha.pipeline.messages.canal_json import CanalJson
from canal_ha.pipeline.messages.debezium_json import DebeziumJson
from canal_ha.pipeline.messages.queue_message import MessageFormat, MessageOrigin
from canal_ha.pipeline.messages.routing import PartitionKey, Placement
from canal_ha.pipeline.row_entry import row_entries
from tests.decode import reading
from tests.decode.test_reader import agree

ORIGIN = MessageOrigin("d", 1, 1)
FROM_ONE = 20  # inputs; making entries takes longer than reading them


def target(chance: random.Random) -> Target | None:
    """Return a target of a random format, or None for a column that is left out."""
    format = chance.randrange(codes.INSTANT + 1)
    if not format:
        return None
    if format == codes.INTEGER:
        return Target(format, chance.choice((1, 2, 4, 8)))
    return Target(format, chance.choice((0, 3)), chance.randrange(1, 39), chance.randrange(10))


def typed(chance: random.Random, data: bytes) -> int:
    """Put the rows into columns of random formats; return the number of rows that fit."""
    work = TableRows(Entries(data, 0, len(data)), chance.choice((1, 10, 1000)), 1 << 20)
    count = 0
    try:
        while (code := work.step()) != codes.DONE:
            if code == codes.TABLE:
                work.add(Sheet(None))
                continue
            count += work.sheet.marks.count
            layout = work.layout
            if code == codes.LAYOUT:
                work.sheet.start(layout.identity, [target(chance) for _ in layout.columns])
            else:
                formats = [one and Target(one.format, one.width, one.precision, one.scale) for one in work.sheet.plan]
                work.sheet.start(work.sheet.identity, formats)
    except Broken:
        return count
    return count


def formats(chance: random.Random) -> tuple[MessageFormat, ...]:
    """Return the formats of messages that the kernel writes."""
    zone, tombstones = chance.choice(("UTC", "Asia/Shanghai")), chance.random() < 0.5
    keys = {} if chance.random() < 0.5 else {"shop.orders": ("c1",)}
    return (
        CanalJson(),
        DebeziumJson(keys, zone, tombstones=tombstones),
        Avro(keys, zone, lambda subject, schema: 1, tombstones=tombstones),
    )


def messages(chance: random.Random, data: bytes) -> int:
    """Write the messages of all entries in all formats; return their number."""
    count = 0
    placement = Placement(PartitionKey(chance.choice((None, ("c0", "c1")))), chance.choice((1, 7)))
    for made in formats(chance):
        with suppress(CanalError):
            for entry in row_entries(data, lambda schema, table: True):
                # values that do not fit their types, and types that no server has
                with suppress(SinkRefused, ValueError, ArithmeticError, SchemaParseException):
                    count += len(list(made.records(entry, "topic", placement, ORIGIN)))
    return count


def main() -> None:
    """Read damaged entries; an unexpected exception or a crash is a finding."""
    seed, first, count = map(int, sys.argv[1:])
    rows = refused = written = 0
    data = b""
    for number in range(first, first + count):
        chance = random.Random(f"{seed} {number}")
        if number % FROM_ONE == 0 or not data:
            data = reading.frames(f"{seed} {number - number % FROM_ONE}", 4, chance.choice((0.0, 0.02, 0.3)))
        damaged = reading.mutated(f"{seed} {number}", data)
        try:
            refused += agree(damaged)
            rows += typed(chance, damaged)
            written += messages(chance, damaged)
        except BaseException:
            print(f"seed {seed}, input {number}", flush=True)
            raise
    print(
        f"{kernel.BUILD}: {count} damaged entries, {refused} refused, {rows} rows fitted their columns,"
        f" {written} messages"
    )


if __name__ == "__main__":
    main()
