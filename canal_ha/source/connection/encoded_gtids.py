"""GTID sets of MySQL as bytes, and the command that asks for what a set lacks (docs/protocol.md#gtids). Pure.

Source: MySQL sql/rpl_gtid_set.cc, Gtid_set::encode; sql/rpl_source.cc, com_binlog_dump_gtid.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from struct import pack

from canal_ha.decode.kernel.gtid import Gtids

COM_BINLOG_DUMP_GTID = 0x1E
_THROUGH_GTID = 0x04
_TAGGED = 1  # the format of sets with tags
_NUMBER_END = (1 << 63) - 1  # no transaction has this number
_UUID_BYTES = 16
_TAG_CHARACTERS = 32


def dump_command(flags: int, server_id: int, gtid_set: bytes) -> bytes:
    """Return the command, without the header of its packet.

    flags: of COM_BINLOG_DUMP.
    gtid_set: encoded.
    """
    journal, offset = b"", 4
    return b"".join(
        (
            pack("<BHI", COM_BINLOG_DUMP_GTID, flags | _THROUGH_GTID, server_id),
            pack("<I", len(journal)) + journal,
            pack("<QI", offset, len(gtid_set)),
            gtid_set,
        )
    )


def encoded(gtid_set: str) -> bytes:
    """Return the bytes of a set. Without tags it has the format that servers before MySQL 8.3 know, too.

    Raises ValueError for a text that is no set of MySQL.
    """
    sources = sorted(_sources(gtid_set))
    tagged = any(tag for _, tag, _ in sources)
    count = _TAGGED << 56 | len(sources) << 8 | _TAGGED if tagged else len(sources)
    return pack("<Q", count) + b"".join(
        uuid + (pack("<B", len(tag) << 1) + tag if tagged else b"") + _intervals(numbers)
        for uuid, tag, numbers in sources
    )


def _sources(gtid_set: str) -> Iterator[tuple[bytes, bytes, list[str]]]:
    """Yield each source with each of its tags, and their numbers."""
    for item in filter(None, Gtids(gtid_set).text.split(",")):
        text, *parts = item.split(":")
        uuid = bytes.fromhex(text.replace("-", ""))
        tags: dict[str, list[str]] = {}
        tag = ""
        for part in parts:
            if part[0].isdigit():
                tags.setdefault(tag, []).append(part)
            else:
                tag = part
        if len(uuid) != _UUID_BYTES or any(len(each) > _TAG_CHARACTERS for each in tags):
            raise ValueError(f"{item!r} is not a GTID set of MySQL")
        for tag, numbers in tags.items():
            yield uuid, tag.encode("ascii"), numbers


def _intervals(numbers: list[str]) -> bytes:
    """Encode intervals: their number, and for each the first transaction and the one behind the last."""
    ends = []
    for text in numbers:
        first, _, last = text.partition("-")
        ends.append((int(first), int(last or first) + 1))
    if not all(0 < first < end <= _NUMBER_END for first, end in ends):
        raise ValueError(f"{':'.join(numbers)!r} are not the numbers of transactions")
    return pack(f"<Q{2 * len(ends)}Q", len(ends), *chain.from_iterable(ends))
