"""The GTID set executed before a binlog file, which its first events say. Pure."""

from __future__ import annotations

from struct import Struct, unpack_from

from canal_ha.decode.decoder import MAGIC
from canal_ha.decode.kernel.gtid import uuid_text
from canal_ha.decode.kernel.kinds import FORMAT_DESCRIPTION, GTID_LIST, PREVIOUS_GTIDS, START_ENCRYPTION

_HEADER = Struct("<IBIIIH")  # time, type, server id, size, end, flags
_U64 = Struct("<Q")
_INTERVAL = Struct("<QQ")
_MARIADB_GTID = Struct("<IIQ")
_COUNT_BITS = (1 << 28) - 1  # MariaDB keeps flags in the other four
_TAGGED = 1  # MySQL's format of sets with tags
_CUT = "the file ends inside its GTID set"


def executed_before(head: bytes) -> tuple[str | None, int]:
    """Return the set and 0; or None and the number of further bytes needed.

    head: the beginning of a file.
    None and 0 mean that the file does not say. Raises ValueError if the event of the set is malformed.
    """
    at = len(MAGIC)
    while head.startswith(MAGIC):
        if at + _HEADER.size > len(head):
            return None, at + _HEADER.size - len(head)
        _, kind, _, size, _, _ = _HEADER.unpack_from(head, at)
        if kind not in (FORMAT_DESCRIPTION, START_ENCRYPTION, PREVIOUS_GTIDS, GTID_LIST) or size < _HEADER.size:
            return None, 0
        if at + size > len(head):
            return None, at + size - len(head)
        body = head[at + _HEADER.size : at + size]
        if kind == PREVIOUS_GTIDS:
            return _previous_gtids(body), 0
        if kind == GTID_LIST:
            return _gtid_list(body), 0
        at += size
    return None, 0


def _previous_gtids(body: bytes) -> str:
    """Return MySQL's set. Source: MySQL sql/rpl_gtid_set.cc, Gtid_set::encode."""
    if len(body) < _U64.size:
        raise ValueError(_CUT)
    (sources,) = _U64.unpack_from(body)
    tagged = sources >> 56 == _TAGGED
    if tagged:
        sources = sources >> 8 & (1 << 48) - 1
    at = _U64.size
    items = []
    for _ in range(sources):
        uuid, at = uuid_text(body[at : at + 16]), at + 16
        if tagged:
            size = body[at] >> 1 if at < len(body) else 0  # its lowest bit says that the size has one byte
            tag, at = body[at + 1 : at + 1 + size].decode("ascii", "replace"), at + 1 + size
            uuid = f"{uuid}:{tag}" if tag else uuid
        if at + _U64.size > len(body):
            raise ValueError(_CUT)
        (count,), at = _U64.unpack_from(body, at), at + _U64.size
        end = at + count * _INTERVAL.size
        if end > len(body):
            raise ValueError(_CUT)
        numbers = [f"{first}-{behind - 1}" for first, behind in _INTERVAL.iter_unpack(body[at:end])]
        items.append(":".join((uuid, *numbers)))
        at = end
    return ",".join(items)


def _gtid_list(body: bytes) -> str:
    """Return the last GTID of each of MariaDB's domains.

    The list has one for each server of a domain. The server that wrote last is at the end.
    Source: MariaDB sql/rpl_gtid.cc, rpl_binlog_state::get_gtid_list.
    """
    if len(body) < 4:
        raise ValueError(_CUT)
    count = unpack_from("<I", body)[0] & _COUNT_BITS
    if 4 + count * _MARIADB_GTID.size > len(body):
        raise ValueError(_CUT)
    listed = _MARIADB_GTID.iter_unpack(body[4 : 4 + count * _MARIADB_GTID.size])
    last = {domain: f"{domain}-{server}-{number}" for domain, server, number in listed}
    return ",".join(last.values())
