"""The first packets of a dump: an artificial ROTATE that names the place, and the format of the events. Pure.

Sources: MySQL sql/rpl_binlog_sender.cc, `fake_rotate_event` and `send_format_description_event`; the layout of event
headers in libs/mysql/binlog/event/binlog_event.h.
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from canal_ha.decode.kernel.kinds import FORMAT_DESCRIPTION, ROTATE

_HEADER = Struct("<IBIIIH")  # time, type, server id, size, position behind the event, flags
_ARTIFICIAL = 0x20  # LOG_EVENT_ARTIFICIAL_F: the event is in no journal
_IN_USE = 1  # LOG_EVENT_BINLOG_IN_USE_F, without which the checksum is computed
_OK = b"\0"  # in front of each event of a dump
_CHECKSUM_BYTES = 4
_PACKET_BYTES = 4  # of the header of a packet: its length and number


def kind(payload: bytes) -> int:
    """Return the type of the event in a packet of a dump; 0 if the packet is too short for one."""
    return payload[5] if len(payload) > _HEADER.size else 0


def head(journal: str, offset: int, description: bytes, *, checksum: bool) -> bytes:
    """Return the packets with which a server begins a dump.

    journal, offset: where the next event starts.
    description: the payload of a packet with the format description of this journal.
    checksum: whether events end in a CRC32.
    """
    server_id = _HEADER.unpack_from(description, 1)[2]
    body = offset.to_bytes(8, "little") + journal.encode()
    size = _HEADER.size + len(body) + (_CHECKSUM_BYTES if checksum else 0)
    rotate = _HEADER.pack(0, ROTATE, server_id, size, 0, _ARTIFICIAL) + body
    if checksum:
        rotate += crc32(rotate).to_bytes(_CHECKSUM_BYTES, "little")
    return _packet(0, rotate) + _packet(1, _without_position(description[1:], checksum=checksum))


def behind_description(received: bytes) -> bytes:
    """Return what a dump has brought behind the first format description. received: all of it, from its begin."""
    at = 0
    while len(received) - at > _PACKET_BYTES:
        payload = at + _PACKET_BYTES
        at = payload + int.from_bytes(received[at : at + 3], "little")
        if kind(received[payload:at]) == FORMAT_DESCRIPTION:
            return received[at:]
    return b""


def _without_position(event: bytes, *, checksum: bool) -> bytes:
    """Return a format description that stands at no position of the journal: the reader stays where ROTATE led it."""
    moment, number, server_id, size, _, flags = _HEADER.unpack_from(event)
    changed = _HEADER.pack(moment, number, server_id, size, 0, flags & ~_IN_USE) + event[_HEADER.size :]
    if checksum:
        changed = changed[:-_CHECKSUM_BYTES] + crc32(changed[:-_CHECKSUM_BYTES]).to_bytes(_CHECKSUM_BYTES, "little")
    return changed


def _packet(number: int, event: bytes) -> bytes:
    return (len(event) + 1).to_bytes(3, "little") + bytes([number]) + _OK + event
