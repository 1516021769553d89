"""Maps MySQL collation ids to codecs, for statements whose QUERY event records the session's charset.

A codec is a name of Python's, or a key of UPPER_HALVES.
"""
# ruff: noqa: RUF001  # letters that look like others are the letters of these charsets

from __future__ import annotations

# Codec -> collation ids; MySQL share/charsets/Index.xml. Statements are never sent in ucs2, utf16, utf32. Names in a
# session of charset binary are UTF-8.
_CHARSETS: dict[str, tuple[int, ...]] = {
    "utf-8": (33, 45, 46, 63, 76, 83, *range(192, 248), *range(255, 324)),
    "cp1252": (5, 8, 15, 31, 47, 48, 49, 94),  # MySQL's latin1
    "armscii8": (32, 64),
    "ascii": (11, 65),
    "big5": (1, 84),
    "cp1250": (26, 34, 44, 66, 99),
    "cp1251": (14, 23, 50, 51, 52),
    "cp1256": (57, 67),
    "cp1257": (29, 58, 59),
    "cp850": (4, 80),
    "cp852": (40, 81),
    "cp866": (36, 68),
    "cp932": (95, 96),
    "dec8": (3, 69),
    "euc_jp": (12, 91, 97, 98),
    "euc_kr": (19, 85),
    "gb18030": (248, 249, 250),
    "gb2312": (24, 86),
    "gbk": (28, 87),
    "geostd8": (92, 93),
    "hp_roman8": (6, 72),
    "iso8859_2": (2, 9, 21, 27, 77),
    "iso8859_7": (25, 70),
    "iso8859_8": (16, 71),
    "iso8859_9": (30, 78),
    "iso8859_13": (20, 41, 42, 79),
    "keybcs2": (37, 73),
    "koi8_r": (7, 74),
    "koi8_u": (22, 75),
    "mac_latin2": (38, 43),  # macce
    "mac_roman": (39, 53),
    "shift_jis": (13, 88),
    "tis_620": (18, 89),
}

# What the bytes from 0x80 on mean in charsets that Python lacks; U+FFFD for bytes without a meaning. Source: MySQL
# share/charsets/*.xml.
_C1 = bytes(range(0x80, 0xA0)).decode("latin-1")
_ARMENIAN = "".join(chr(0x531 + letter) + chr(0x561 + letter) for letter in range(38))
UPPER_HALVES = {
    "armscii8": _C1 + "\xa0❁§։)(»«\u2014.՝,-՟…՜՛՞" + _ARMENIAN + "\u2019'",
    "dec8": _C1
    + "\xa0¡¢£�¥�§¤©ª«����°±²³�µ¶·�¹º»¼½�¿"
    + "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏ�ÑÒÓÔÕÖŒØÙÚÛÜŸ�ßàáâãäåæçèéêëìíîï�ñòóôõöœøùúûüÿ��",
    "geostd8": "€�‚�„…†‡�‰�‹�����‘’“”•–—���›����"
    + bytes(range(0xA0, 0xC0)).decode("latin-1")
    + "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ"
    + "\ufffd" * 23
    + "\u2116\ufffd\ufffd",
    "keybcs2": "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ" + bytes(range(0xAC, 0x100)).decode("cp437"),
}

_CODECS = {collation: codec for codec, ids in _CHARSETS.items() for collation in ids}


# Charsets of columns that no client sends.
_WIDE = {
    "utf-16-be": (35, 54, 55, 90, *range(101, 125), *range(128, 152), 159),
    "utf-16-le": (56, 62),
    "utf-32-be": (60, 61, *range(160, 184)),
}
_WIDE_CODECS = {collation: codec for codec, ids in _WIDE.items() for collation in ids}


def column_codec(collation: int) -> str:
    """Return the codec of a column's charset; "" if it is unknown."""
    if collation >= 2560:  # MariaDB's collations of Unicode 14 for ucs2, utf16 and utf32
        return ""
    return _WIDE_CODECS.get(collation) or ("utf-8" if collation >= 2048 else _CODECS.get(collation, ""))


def codec_of(collation: int) -> str:
    """Return the codec of a client charset; Latin-1 if it is unknown, so that no byte is lost."""
    if collation >= 2048:  # MariaDB's collations of Unicode 14: utf8mb3, utf8mb4, or charsets that no client sends
        return "utf-8"
    return _CODECS.get(collation, "latin-1")
