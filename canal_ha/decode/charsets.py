"""Maps MySQL's and MariaDB's collation ids to character sets, and to codecs for statements and labels in them.

A codec is a name of Python's, or a key of UPPER_HALVES.
"""
# ruff: noqa: RUF001  # letters that look like others are the letters of these charsets

from __future__ import annotations

BINARY = "binary"
_DOUBT = "?"

# Character set -> ids of its collations below 1024; share/charsets/Index.xml, the same in MySQL and MariaDB.
_COLLATIONS: dict[str, tuple[int, ...]] = {
    "armscii8": (32, 64),
    "ascii": (11, 65),
    "big5": (1, 84),
    BINARY: (63,),
    "cp1250": (26, 34, 44, 66, 99),
    "cp1251": (14, 23, 50, 51, 52),
    "cp1256": (57, 67),
    "cp1257": (29, 58, 59),
    "cp850": (4, 80),
    "cp852": (40, 81),
    "cp866": (36, 68),
    "cp932": (95, 96),
    "dec8": (3, 69),
    "eucjpms": (97, 98),
    "euckr": (19, 85),
    "gb18030": (248, 249, 250),
    "gb2312": (24, 86),
    "gbk": (28, 87),
    "geostd8": (92, 93),
    "greek": (25, 70),
    "hebrew": (16, 71),
    "hp8": (6, 72),
    "keybcs2": (37, 73),
    "koi8r": (7, 74),
    "koi8u": (22, 75),
    "latin1": (5, 8, 15, 31, 47, 48, 49, 94),
    "latin2": (2, 9, 21, 27, 77),
    "latin5": (30, 78),
    "latin7": (20, 41, 42, 79),
    "macce": (38, 43),
    "macroman": (39, 53),
    "sjis": (13, 88),
    "swe7": (10, 82),
    "tis620": (18, 89),
    "ucs2": (35, 90, *range(128, 160), *range(640, 672)),
    "ujis": (12, 91),
    "utf16": (54, 55, *range(101, 128), *range(672, 704)),
    "utf16le": (56, 62),
    "utf32": (60, 61, *range(160, 192), *range(736, 768)),
    "utf8mb3": (33, 76, 83, *range(192, 224), *range(576, 608)),
    "utf8mb4": (45, 46, *range(224, 248), *range(255, 324), *range(608, 640)),
}
_NAMES = {collation: name for name, ids in _COLLATIONS.items() for collation in ids}
# MariaDB: NOPAD variants have an id 1024 higher, and the collations of Unicode 14 come in blocks of 256 from 2048 on.
_NOPAD = 1024
_UNICODE_14 = 2048
_UNICODE_14_NAMES = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")

# Statements are never sent in ucs2, utf16, utf32. Names in a session of charset binary are UTF-8.
_CODECS = {
    "armscii8": "armscii8",
    "ascii": "ascii",
    "big5": "big5",
    BINARY: "utf-8",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp932": "cp932",
    "dec8": "dec8",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "geostd8": "geostd8",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "hp8": "hp_roman8",
    "keybcs2": "keybcs2",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "latin1": "cp1252",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "sjis": "shift_jis",
    "tis620": "tis_620",
    "ujis": "euc_jp",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
}
_LONGEST = {
    **dict.fromkeys(("utf8mb4", "utf16", "utf16le", "utf32", "gb18030"), 4),
    **dict.fromkeys(("utf8mb3", "ujis", "eucjpms"), 3),
    **dict.fromkeys(("big5", "cp932", "euckr", "gb2312", "gbk", "sjis", "ucs2"), 2),
}
_WIDE = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}

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


def charset_of(collation: int) -> str:
    """Return the name of a collation's character set; "" if the collation is unknown."""
    if collation >= _UNICODE_14:
        block = (collation - _UNICODE_14) >> 8
        return _UNICODE_14_NAMES[block] if block < len(_UNICODE_14_NAMES) else ""
    return _NAMES.get(collation - _NOPAD if collation >= _NOPAD else collation, "")


def collation_of(charset: str) -> int:
    """Return a collation of a character set; 0 if the charset is unknown."""
    return _COLLATIONS.get("utf8mb3" if charset == "utf8" else charset, (0,))[0]


def longest_character(charset: str) -> int:
    """Return the bytes of a character set's longest character, which the size of a column counts for each."""
    return _LONGEST.get(charset, 1)


def codec_of(collation: int) -> str:
    """Return the codec of a client charset; Latin-1 if it is unknown, so that no byte is lost."""
    return _CODECS.get(charset_of(collation), "latin-1")


def label_codec(collation: int) -> str:
    """Return the codec of a column's ENUM and SET labels; "" if the collation is unknown."""
    name = charset_of(collation)
    return _WIDE.get(name) or _CODECS.get(name, "")


def doubted(charset: str) -> str:
    """Return a charset that only some servers have set."""
    return charset.removesuffix(_DOUBT) + _DOUBT


def in_doubt(charset: str) -> bool:
    """Return whether only some servers have set this charset."""
    return charset.endswith(_DOUBT)


def beyond_doubt(charset: str) -> str:
    """Return a charset as those servers have it that have set it."""
    return charset.removesuffix(_DOUBT)
