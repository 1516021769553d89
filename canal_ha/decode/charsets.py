"""Maps MySQL collation ids to Python codecs, for statements whose QUERY event records the session's charset."""

from __future__ import annotations

# Charset -> (codec, collation ids); MySQL share/charsets/Index.xml. Statements are never sent in ucs2, utf16, utf32.
_CHARSETS: dict[str, tuple[int, ...]] = {
    "utf-8": (33, 45, 46, 76, 83, *range(192, 248), *range(255, 324)),
    "cp1252": (5, 8, 15, 31, 47, 48, 49, 94),  # MySQL's latin1
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
    "euc_jp": (12, 91, 97, 98),
    "euc_kr": (19, 85),
    "gb18030": (248, 249, 250),
    "gb2312": (24, 86),
    "gbk": (28, 87),
    "iso8859_2": (2, 9, 21, 27, 77),
    "iso8859_7": (25, 70),
    "iso8859_8": (16, 71),
    "iso8859_9": (30, 78),
    "iso8859_13": (20, 41, 42, 79),
    "koi8_r": (7, 74),
    "koi8_u": (22, 75),
    "shift_jis": (13, 88),
    "tis_620": (18, 89),
}

_CODECS = {collation: codec for codec, ids in _CHARSETS.items() for collation in ids}


def codec_of(collation: int) -> str:
    """Return the codec of a client charset; Latin-1 if it is unknown, so that no byte is lost."""
    if collation >= 2048:  # MariaDB's collations of Unicode 14: utf8mb3, utf8mb4, or charsets that no client sends
        return "utf-8"
    return _CODECS.get(collation, "latin-1")
