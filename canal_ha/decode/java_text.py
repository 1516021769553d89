"""Decodes text as Java and canal do: Python's codecs differ in a few characters and for malformed bytes.

Java treats two bytes as one malformed character if the first may lead and the second may neither lead nor stand
alone; otherwise it treats one byte so. Its GBK decodes user-defined characters like GB 18030, except a few.
Source: Java 17, asked for every pair (tests/golden/java17_charsets.json.gz).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from canal_ha.decode.charsets import UPPER_HALVES

MALFORMED = "\ufffd"
UTF8_ERRORS = "canal-utf-8"  # an error handler for bytes.decode("utf-8", ...)

_LINE = re.compile(rb"[\x00-\x7f]+")


@dataclass(frozen=True, slots=True)
class _Rules:
    """How to decode one charset of one or two bytes for each character.

    codec: Python's.
    leads, singles: bytes beyond ASCII that may begin a pair, or stand alone.
    wider: another codec, for pairs that the first rejects.
    differ: pairs that Java decodes differently; "" for malformed ones.
    careful: matches bytes that Python may decode differently, so that its decoder is not used.
    """

    codec: str
    leads: frozenset[int]
    singles: frozenset[int] = frozenset()
    wider: str = ""
    differ: Mapping[bytes, str] = field(default_factory=dict)
    careful: re.Pattern[bytes] | None = None

    def decode(self, data: bytes) -> str:
        if self.careful is None or not self.careful.search(data):
            with suppress(UnicodeDecodeError):
                return data.decode(self.codec)
        return "".join(self._pieces(data))

    def _pieces(self, data: bytes) -> Iterator[str]:
        at = 0
        while at < len(data):
            line = _LINE.match(data, at)
            if line is not None:
                yield line[0].decode("ascii")
                at = line.end()
                continue
            pair = data[at : at + 2]
            if pair[0] in self.singles:
                yield pair[:1].decode(self.codec)
                at += 1
                continue
            text = self._pair(pair) if len(pair) == 2 and pair[0] in self.leads else ""
            yield text or MALFORMED
            alone = not text and (len(pair) == 1 or not self._swallows(pair))
            at += 1 if alone else 2

    def _swallows(self, pair: bytes) -> bool:
        second = pair[1]
        alone = second < 0x80 or second in self.leads or second in self.singles
        return pair[0] in self.leads and not alone

    def _pair(self, pair: bytes) -> str:
        if pair in self.differ:
            return self.differ[pair]
        for codec in filter(None, (self.codec, self.wider)):
            with suppress(UnicodeDecodeError):
                return pair.decode(codec)
        return ""


def _bytes(*runs: tuple[int, int]) -> frozenset[int]:
    return frozenset(byte for first, last in runs for byte in range(first, last + 1))


def _any(pairs: Iterable[bytes]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(map(re.escape, pairs)))


def _characters(*runs: tuple[int, int, int]) -> dict[bytes, str]:
    """Return the characters of runs of (first pair, first character, count)."""
    return {(pair + i).to_bytes(2, "big"): chr(char + i) for pair, char, count in runs for i in range(count)}


_GBK = _characters(
    (0xA892, 0x2641, 1),
    (0xA8BF, 0xE7C8, 1),
    (0xA989, 0xE7E7, 13),
    (0xFE50, 0xE815, 1),
    (0xFE54, 0xE819, 5),
    (0xFE5A, 0xE81F, 7),
    (0xFE62, 0xE827, 4),
    (0xFE68, 0xE82D, 4),
    (0xFE6E, 0xE833, 8),
    (0xFE77, 0xE83C, 7),
    (0xFE80, 0xE844, 16),
    (0xFE92, 0xE856, 14),
)
_BIG5 = _characters((0xA15A, 0xFF3F, 1), (0xA1FE, 0x2571, 1), (0xA240, 0x2572, 1)) | {b"\xa1\xc3": "", b"\xa1\xc5": ""}
_SHIFT_JIS = _characters((0x815C, 0x2014, 1))
_EUC_KR = _characters((0xA2E8, 0x327E, 1), (0xA4D4, 0x3164, 1))
_KANA = _bytes((0xA1, 0xDF))
_RULES = {
    rules.codec: rules
    for rules in (
        _Rules("gbk", _bytes((0x81, 0xFE)), wider="gb18030", differ=_GBK, careful=_any(_GBK)),
        _Rules("gb2312", _bytes((0xA1, 0xA9), (0xB0, 0xF7))),
        _Rules("big5", _bytes((0xA1, 0xC7), (0xC9, 0xF9)), differ=_BIG5, careful=_any(_BIG5)),
        _Rules(
            "shift_jis",
            _bytes((0x81, 0x84), (0x88, 0x9F), (0xE0, 0xEA)),
            _KANA,
            differ=_SHIFT_JIS,
            careful=_any(_SHIFT_JIS),
        ),
        _Rules(
            "cp932",
            _bytes((0x81, 0x84), (0x87, 0x9F), (0xE0, 0xEA), (0xED, 0xEE), (0xF0, 0xFC)),
            _KANA,
            careful=re.compile(rb"[\x80\xa0\xfd-\xff]"),
        ),
        _Rules("euc_kr", _bytes((0xA1, 0xAC), (0xB0, 0xC8), (0xCA, 0xFD)), differ=_EUC_KR, careful=_any(_EUC_KR)),
    )
}


_GB18030 = _characters(
    (0xA6D9, 0xFE10, 1),
    (0xA6DA, 0xFE12, 1),
    (0xA6DB, 0xFE11, 1),
    (0xA6DC, 0xFE13, 4),
    (0xA6EC, 0xFE17, 2),
    (0xA6F3, 0xFE19, 1),
    (0xA8BC, 0x1E3F, 1),
    (0xFE59, 0x9FB4, 1),
    (0xFE61, 0x9FB5, 1),
    (0xFE66, 0x9FB6, 2),
    (0xFE6D, 0x9FB8, 1),
    (0xFE7E, 0x9FB9, 1),
    (0xFE90, 0x9FBA, 1),
    (0xFEA0, 0x9FBB, 1),
)
_OTHERS = {  # have longer sequences too: characters are replaced, malformed bytes are left to Python
    "gb18030": {ord(pair.decode("gb18030")): char for pair, char in _GB18030.items()},
    "euc_jp": {0x2015: "\u2014"},
}


def decode(data: bytes, codec: str) -> str:
    """Decode text. codec: see charsets.py. Malformed bytes become U+FFFD."""
    if codec == "utf-8":
        return data.decode("utf-8", UTF8_ERRORS)
    rules = _RULES.get(codec)
    if rules is not None:
        return rules.decode(data)
    upper = UPPER_HALVES.get(codec)
    if upper is not None:
        return data.decode("latin-1").translate(dict(enumerate(upper, 0x80)))
    text = data.decode(codec, "replace")
    return text.translate(_OTHERS[codec]) if codec in _OTHERS else text


def _surrogates(error: UnicodeError) -> tuple[str, int]:
    """Return one U+FFFD for malformed bytes, and one for a whole surrogate, which Python treats byte by byte."""
    assert isinstance(error, UnicodeDecodeError)
    rest = error.object[error.start : error.start + 3]
    if rest[0] == 0xED and len(rest) > 1 and 0xA0 <= rest[1] <= 0xBF:
        whole = len(rest) == 3 and 0x80 <= rest[2] <= 0xBF
        return MALFORMED, error.start + (3 if whole else 2)
    return MALFORMED, error.end


codecs.register_error(UTF8_ERRORS, _surrogates)
