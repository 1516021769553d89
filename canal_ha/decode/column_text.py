"""Decodes the texts of columns as the servers convert them to utf8mb4: Python's codecs, and where they differ.

A character that the server cannot convert is what Python's codec makes of it, else "?", as SELECT shows it.
Source: MySQL 9.7 and MariaDB 10.11, asked for every byte and every pair of bytes; tests/decode/test_column_text_real.py
asks again.
"""

from __future__ import annotations

import codecs
import ipaddress
import uuid
from collections.abc import Callable, Iterable, Mapping

from canal_ha.decode.charsets import UPPER_HALVES

Reader = Callable[[bytes], str]
Run = tuple[int, int, int]  # first byte or pair of bytes, first character, how many


def decode(data: bytes, name: str) -> str:
    """Decode a column's stored bytes. name: a character set, or uuid, inet4, inet6; one of READERS."""
    return READERS[name](data)


def _characters(runs: Iterable[Run]) -> dict[int, str]:
    return {code + i: chr(character + i) for code, character, count in runs for i in range(count)}


# ---- one byte a character


def _single(codec: str, runs: Iterable[Run] = (), missing: str = "?") -> Reader:
    """Return a reader of single bytes. runs: what differs from the codec; missing: for bytes without a character."""
    differ = _characters(runs)
    return _table("".join(differ.get(byte) or _of_codec(byte, codec, missing) for byte in range(256)))


def _of_codec(byte: int, codec: str, missing: str) -> str:
    try:
        return bytes([byte]).decode(codec)
    except UnicodeDecodeError:
        return missing


def _half(name: str) -> Reader:
    """Return a reader of a character set that Python lacks."""
    return _table(bytes(range(128)).decode() + UPPER_HALVES[name].replace("\ufffd", "?"))


def _table(table: str) -> Reader:
    return lambda data: codecs.charmap_decode(data, "strict", table)[0]


_LATIN1 = tuple((byte, byte, 1) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D))
_SWE7 = ((0x40, 0xC9, 1), (0x5B, 0xC4, 1), (0x5C, 0xD6, 1), (0x5D, 0xC5, 1), (0x5E, 0xDC, 1), (0x60, 0xE9, 1),
         (0x7B, 0xE4, 1), (0x7C, 0xF6, 1), (0x7D, 0xE5, 1), (0x7E, 0xFC, 1))  # fmt: skip


# ---- several bytes a character


def _multiple(name: str, codec: str, runs: Iterable[Run] = (), differ: Mapping[int, str] | None = None) -> Reader:
    """Return a reader of characters of one to four bytes.

    name: the character set.
    codec: Python's.
    runs: pairs of bytes that the codec does not know.
    differ: characters that the server puts in the place of the codec's.
    """
    pairs = _characters(runs)

    def unknown(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        pair = error.object[error.start : error.start + 2]
        found = pairs.get(int.from_bytes(pair, "big"))
        if found is None:
            return "?", max(error.end, error.start + len(pair))
        return found, error.start + 2

    handler = f"canal-column-{name}"
    codecs.register_error(handler, unknown)

    def read(data: bytes) -> str:
        text = data.decode(codec, handler)
        return text.translate(differ) if differ else text

    return read


def _private_rows(first: int) -> tuple[Run, ...]:
    """Return the ten rows of 94 user-defined characters that begin at a pair of bytes."""
    return tuple((first + (row << 8), 0xE000 + 94 * row, 94) for row in range(10))


def _row_13() -> tuple[Run, ...]:
    """Return NEC's row 13, which EUC-JP lacks and code page 932 has at 0x8740."""
    found = []
    for cell in range(94):
        pair = 0x8740 + cell + (cell >= 63)
        try:
            found.append((0xADA1 + cell, ord(pair.to_bytes(2, "big").decode("cp932")), 1))
        except UnicodeDecodeError:
            continue
    return tuple(found)


_BIG5 = tuple((0xF9D6 + i, code, 1) for i, code in enumerate((0x7881, 0x92B9, 0x88CF, 0x58BB, 0x6052, 0x7CA7, 0x5AFA)))
_EUCJPMS = {0x301C: "\uff5e", 0x2016: "\u2225", 0x2212: "\uff0d", 0xA2: "\uffe0", 0xA3: "\uffe1", 0xAC: "\uffe2"}


def _wide(codec: str) -> Reader:
    return lambda data: data.decode(codec, "replace")


# ---- MariaDB's addresses; the binlog omits zero bytes at the end


def _uuid(data: bytes) -> str:
    return str(uuid.UUID(bytes=data.ljust(16, b"\0")))


def _inet4(data: bytes) -> str:
    return str(ipaddress.IPv4Address(data.ljust(4, b"\0")))


def _inet6(data: bytes) -> str:
    """Return the address as MariaDB writes it: the last 32 bits of mapped and compatible addresses look like IPv4."""
    packed = data.ljust(16, b"\0")
    last = str(ipaddress.IPv4Address(packed[12:]))
    if packed[:12] == bytes(10) + b"\xff\xff":
        return f"::ffff:{last}"
    if packed[:12] == bytes(12) and packed[12:14] != bytes(2):
        return f"::{last}"
    return str(ipaddress.IPv6Address(packed))


ADDRESSES = frozenset({"uuid", "inet4", "inet6"})

READERS: dict[str, Reader] = {
    "armscii8": _half("armscii8"),
    "big5": _multiple("big5", "big5", _BIG5),
    "cp1250": _single("cp1250"),
    "cp1251": _single("cp1251"),
    "cp1256": _single("cp1256"),
    "cp1257": _single("cp1257"),
    "cp850": _single("cp850"),
    "cp852": _single("cp852"),
    "cp866": _single("cp866", ((0xFC, 0x207F, 1), (0xFD, 0x00B2, 1))),
    "cp932": _multiple("cp932", "cp932"),
    "dec8": _half("dec8"),
    "eucjpms": _multiple("eucjpms", "euc_jp", (*_row_13(), *_private_rows(0xF5A1)), _EUCJPMS),
    "euckr": _multiple("euckr", "cp949"),
    "gb18030": _multiple("gb18030", "gb18030", differ={0xE7C7: "\u1e3f"}),
    "gb2312": _multiple("gb2312", "gb2312"),
    "gbk": _multiple("gbk", "gbk"),
    "geostd8": _half("geostd8"),
    "greek": _single("iso8859_7", ((0xA1, 0x02BD, 1), (0xA2, 0x02BC, 1))),
    "hebrew": _single("iso8859_8", ((0xAF, 0x203E, 1),)),
    "hp8": _single("hp_roman8"),
    "keybcs2": _half("keybcs2"),
    "koi8r": _single("koi8_r"),
    "koi8u": _single("koi8_u", ((0x95, 0x2022, 1),)),
    "latin1": _single("cp1252", _LATIN1),
    "latin2": _single("iso8859_2"),
    "latin5": _single("iso8859_9"),
    "latin7": _single("iso8859_13"),
    "macce": _single("mac_latin2"),
    "macroman": _single("mac_roman"),
    "sjis": _multiple("sjis", "shift_jis", differ={0xFF3C: "\\"}),
    "swe7": _single("ascii", _SWE7),
    "tis620": _single("tis_620", missing="\ufffd"),
    "ucs2": _wide("utf-16-be"),
    "ujis": _multiple("ujis", "euc_jp", _private_rows(0xF5A1), {0xFF3C: "\\"}),
    "utf16": _wide("utf-16-be"),
    "utf16le": _wide("utf-16-le"),
    "utf32": _wide("utf-32-be"),
    "uuid": _uuid,
    "inet4": _inet4,
    "inet6": _inet6,
}
