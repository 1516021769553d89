"""Replays recorded binlog files, to compare with the entries that canal made from them (tests/golden/binlog)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from canal_ha.config.model import DecodeOptions
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.decode.history.history import History
from canal_ha.model.segment import Segment, Source
from lab.differences import deliberate

DIRECTORY = Path(__file__).parents[1] / "tests" / "golden" / "binlog"
JOURNAL = "mysql-bin.000001"
MYSQL_GTIDS = "cc9eb805-e57b-11f1-8162-02fc00000001:1"
MARIADB_GTIDS = "0-17-1"


@dataclass(frozen=True)
class Recorded:
    """An entry that canal made."""

    case: str
    offset: int
    entry: bytes


def binlog(tag: str) -> bytes:
    """Return a binlog file, including its magic."""
    return gzip.decompress((DIRECTORY / f"{tag}.binlog.gz").read_bytes())


def expected(name: str) -> list[Recorded]:
    """Return our expected entries of a file: canal's, with the deliberate differences."""
    return [replace(one, entry=deliberate(one.entry)) for one in entries(name)]


def entries(name: str) -> list[Recorded]:
    """Return canal's entries. name: a tag, or tag.variant."""
    lines = gzip.decompress((DIRECTORY / f"{name}.entries.jsonl.gz").read_bytes()).splitlines()
    rows = [json.loads(line) for line in lines]
    return [Recorded(row["case"], row["offset"], bytes.fromhex(row["entry_hex"])) for row in rows]


def definitions(tag: str) -> dict[str, str]:
    """Return the texts of SHOW CREATE TABLE at the end of each case, by case/table."""
    texts: dict[str, str] = json.loads(gzip.decompress((DIRECTORY / f"{tag}.show_create.json.gz").read_bytes()))
    return texts


class _Definitions:
    """Returns SHOW CREATE TABLE at the end of the replayed case."""

    def __init__(self, tag: str) -> None:
        self._texts = definitions(tag)
        self.case = ""

    def fetch(self, schema: str, table: str) -> str | None:
        del schema
        return self._texts.get(f"{self.case}/{table}")


ALL_TABLES = (r".*\..*", r"mysql\.slave_.*")


def replay(
    tag: str,
    options: DecodeOptions | None = None,
    tables: tuple[str, str] = ALL_TABLES,
    gtid_set: str | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, entry) for our entries of a recorded file."""
    for segment in segments(tag, options, tables, gtid_set):
        yield from zip(segment.offsets, segment.entries(), strict=True)


def segments(
    tag: str,
    options: DecodeOptions | None = None,
    tables: tuple[str, str] = ALL_TABLES,
    gtid_set: str | None = None,
) -> Iterator[Segment]:
    """Yield the segments of a recorded file; the decoder is fed case by case."""
    options = options or DecodeOptions()
    known = _Definitions(tag)
    decoder = Decoder(
        source=Source("localhost", 3306),
        journal=JOURNAL,
        position=4,
        options=options,
        tables=TableFilter(*tables),
        fields=FieldFilter(options.field_filter, options.field_black_filter),
        history=History(known.fetch, live_texts=not options.table_history).view(None),
        gtid_set=gtid_set,
    )
    data = binlog(tag)
    starts = [(case, next(group).offset) for case, group in groupby(entries(tag), lambda recorded: recorded.case)]
    stops = [offset for _, offset in starts[1:]] + [len(data)]
    begin = 0
    for (case, _), stop in zip(starts, stops, strict=True):
        known.case = case
        for output in decoder.feed_file(data[begin:stop]):
            if isinstance(output, Segment):
                yield output
        begin = stop
