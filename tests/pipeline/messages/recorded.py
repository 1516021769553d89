"""Entries of a real canal server, with the messages that canal's own Kafka producer makes of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from canal_ha.client.message import parse
from canal_ha.pipeline.row_entry import RowEntry, row_entries
from canal_ha.wire.proto.entry_protocol_pb2 import Entry
from tests.spark.entries import frames

GOLDEN = Path(__file__).parents[2] / "golden"
LONGEST_HEX = 20_000
TAGS = ["mysql9", "mariadb10.11", "mysql9_gtid"]


def row_entry(raw: bytes) -> RowEntry:
    """Return an entry with rows or a statement."""
    (found,) = row_entries(frames([raw]), lambda schema, table: True)
    return found


def recorded(tag: str) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """Yield the entries with canal's answers; see tests/golden/flat_messages/README.md."""
    entries = gzip.decompress((GOLDEN / "binlog" / f"{tag}.entries.jsonl.gz").read_bytes()).splitlines()
    answers = gzip.decompress((GOLDEN / "flat_messages" / f"{tag}.messages.jsonl.gz").read_bytes()).splitlines()
    texts = [text for text in (json.loads(line)["entry_hex"] for line in entries) if len(text) < LONGEST_HEX]
    for text, answer in zip(texts, answers, strict=True):
        yield parse(bytes.fromhex(text)), json.loads(answer)
