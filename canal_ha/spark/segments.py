"""Reads and writes segment files: compressed entries as received, with a small index and a checksum. Pure.

magic  "CHSEG1\\n"
u32    length of the index, u32 length of the body, u32 CRC-32 of index and body (big-endian)
index  JSON {"destination":...,"rows":{"shop.orders":12},"raw":...,"server":...,"statements":false}; earlier versions
       wrote no server and no statements
body   zstd of frames: field 2 of canal's Messages, tag, length, entry, tag, length, ...

"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import zstandard

from canal_ha.errors import SpoolUnusable

MAGIC = b"CHSEG1\n"
_HEAD = struct.Struct(">III")
LEVEL = 1  # zstd level; row images of one table are so similar that a higher level gains little


@dataclass(frozen=True, slots=True)
class Contents:
    """The content of a segment.

    destination: name of the destination.
    rows: number of rows by `schema.table`; a statement counts as one.
    frames: raw entries.
    server: whose binlog the entries are from, as in LogPosition; "" if unknown.
    statements: False if no entry is a statement: DDL, or a change of rows that the source logged as a statement.
    """

    destination: str
    rows: Mapping[str, int]
    frames: bytes
    server: str = ""
    statements: bool = True


def encode(
    destination: str,
    rows: Mapping[str, int],
    frames: Iterable[bytes | memoryview],
    server: str = "",
    *,
    statements: bool = True,
) -> bytes:
    """Build the file. The arguments are the fields of Contents; the frames may be in several pieces."""
    pieces = list(frames)
    size = sum(map(len, pieces))
    described = {
        "destination": destination,
        "rows": dict(rows),
        "raw": size,
        "server": server,
        "statements": statements,
    }
    index = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    work = zstandard.ZstdCompressor(level=LEVEL).compressobj(size=size)
    body = b"".join([*map(work.compress, pieces), work.flush()])
    checksum = zlib.crc32(body, zlib.crc32(index))
    return MAGIC + _HEAD.pack(len(index), len(body), checksum) + index + body


def decode(data: bytes, name: str) -> Contents:
    """Parse a file. name: its name, for messages. Raises SpoolUnusable if the file is damaged."""
    start = len(MAGIC) + _HEAD.size
    if data[: len(MAGIC)] != MAGIC or len(data) < start:
        raise SpoolUnusable(f"{name} is not a segment of a spool")
    index_size, body_size, checksum = _HEAD.unpack_from(data, len(MAGIC))
    if len(data) != start + index_size + body_size:
        raise SpoolUnusable(f"{name} has {len(data)} bytes instead of {start + index_size + body_size}")
    view = memoryview(data)
    if zlib.crc32(view[start:]) != checksum:
        raise SpoolUnusable(f"{name} is damaged: its checksum does not match")
    index = json.loads(bytes(view[start : start + index_size]))
    frames = zstandard.ZstdDecompressor().decompress(view[start + index_size :], max_output_size=index["raw"])
    return Contents(
        index["destination"], index["rows"], frames, index.get("server", ""), bool(index.get("statements", True))
    )
