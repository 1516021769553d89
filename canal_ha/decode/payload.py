"""The content of MySQL's TRANSACTION_PAYLOAD: the events of a compressed transaction, in pieces. Pure.

The server limits the compressed size only, so the content can be larger than any event, and than memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import zstandard

import canal_ha.decode.kernel.primitives as p
from canal_ha.decode.values import packed_integer

PIECE_BYTES = 16 << 20  # a smaller content is one piece, of which nothing is decoded if it is malformed
_INFLATE_BYTES = 1 << 20  # how much to decompress at a time
_END, _COMPRESSION, _SIZE = 0, 2, 3  # fields
_ZSTD, _UNCOMPRESSED = 0, 255


def pieces(body: bytes) -> Iterator[bytes]:
    """Yield the content: fields of type, length, value come first. Raises Broken, possibly only after the last piece.

    Source: MySQL libs/mysql/binlog/event/codecs/binary.cpp, Transaction_payload.
    """
    pos = 0
    compression = _UNCOMPRESSED
    claimed = -1
    while True:
        kind, pos = packed_integer(body, pos, len(body))
        if kind == _END:
            break
        size, pos = packed_integer(body, pos, len(body))
        if pos + size > len(body):
            raise p.Broken("a payload field beyond its event")
        if kind == _COMPRESSION:
            compression, _ = packed_integer(body, pos, pos + size)
        elif kind == _SIZE:
            claimed, _ = packed_integer(body, pos, pos + size)
        pos += size
    if compression == _ZSTD:
        content = _inflated(body[pos:])
    elif compression == _UNCOMPRESSED:
        content = iter((body[pos:],))
    else:
        raise p.Broken(f"a payload compressed by method {compression}")
    return content if claimed < 0 else _measured(content, claimed)


def _inflated(payload: bytes) -> Iterator[bytes]:
    piece = bytearray()
    try:
        with zstandard.ZstdDecompressor().stream_reader(payload, read_across_frames=True) as reader:
            while more := reader.read(_INFLATE_BYTES):
                piece += more
                if len(piece) >= PIECE_BYTES:
                    yield bytes(piece)
                    piece.clear()
    except zstandard.ZstdError as error:
        raise p.Broken(f"a compressed payload does not decompress: {error}") from error
    yield bytes(piece)


def _measured(content: Iterator[bytes], claimed: int) -> Iterator[bytes]:
    """Yield pieces whose total size is as claimed. Raises Broken before a piece beyond it, and if they are too few."""
    size = 0
    held = b""  # so that a single piece is yielded only after its size is checked
    for piece in content:
        size += len(piece)
        if size > claimed:
            raise p.Broken(f"a payload of more than the {claimed} bytes that it claims")
        if held:
            yield held
        held = piece
    if size != claimed:
        raise p.Broken(f"a payload of {size} bytes that claims {claimed}")
    yield held
