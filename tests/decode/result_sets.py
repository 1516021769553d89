"""Random rows of SELECTs, and what writes them as row images."""

from __future__ import annotations

import random

from canal_ha.decode.binary_json import document
from canal_ha.decode.kernel import images, kinds
from canal_ha.decode.kernel.images import RowImages
from canal_ha.decode.values import packed

Declared = tuple[int, int, int, int, int]  # kind, size, precision, decimals, stripped

COLUMNS: tuple[Declared, ...] = (
    *((kinds.INTEGER, size, 0, 0, 0) for size in (1, 2, 3, 4, 8)),
    *((kinds.PREFIXED, size, 0, 0, stripped) for size, stripped in ((1, 0), (1, 1), (2, 0), (3, 0), (4, 0))),
    *((kinds.DECIMAL, 0, precision, scale, 0) for precision, scale in ((65, 30), (10, 0), (9, 9), (14, 4), (1, 0))),
    *((kind, 0, 0, scale, 0) for kind in (kinds.DATETIME2, kinds.TIMESTAMP2, kinds.TIME2) for scale in range(7)),
    *((kinds.BIT, size, 0, 0, 0) for size in (1, 3, 8)),
    *((kinds.SET, 8, 0, 0, 0), (kinds.ENUM, 2, 0, 0, 0)),
    *((kinds.DOUBLE, 8, 0, 0, 0), (kinds.FLOAT, 4, 0, 0, 0), (kinds.DATE, 3, 0, 0, 0), (kinds.YEAR, 1, 0, 0, 0)),
    (images.DOCUMENT, 4, 0, 0, 0),
)


def writer(columns: list[Declared]) -> RowImages:
    """Return what writes rows of these columns."""
    each = [bytes(values) for values in zip(*columns, strict=True)]
    return RowImages(each[0], each[1], each[2], each[3], each[4], document)


def packet(*texts: bytes | None) -> bytes:
    """Return a row as a server sends it."""
    content = b"".join(b"\xfb" if text is None else packed(len(text)) + text for text in texts)
    out = b""
    while True:
        part, content = content[:0xFFFFFF], content[0xFFFFFF:]
        out += len(part).to_bytes(3, "little") + b"\0" + part
        if len(part) < 0xFFFFFF:
            return out


def drawn(chance: random.Random) -> tuple[bytes, RowImages]:
    """Return a few rows of random columns, and what writes them."""
    columns = chance.choices(COLUMNS, k=chance.choice((1, 2, 7, 8, 9, 20)))
    rows = [
        packet(*[None if chance.random() < 0.1 else _text(chance, column) for column in columns])
        for _ in range(chance.randrange(1, 6))
    ]
    return b"".join(rows), writer(columns)


def _text(chance: random.Random, column: Declared) -> bytes:
    kind, _, precision, scale, _ = column
    if kind in (kinds.INTEGER, kinds.BIT, kinds.SET, kinds.ENUM):
        number = chance.choice((0, 1, 255, (1 << 64) - 1, chance.randrange(1 << 63), chance.randrange(1 << 20)))
        return b"%s%d" % (chance.choice((b"", b"", b"-", b"000")), number)
    if kind == kinds.PREFIXED:
        return chance.randbytes(chance.choice((0, 1, 5, 250, 251, 255, 300))) + bytes(chance.randrange(3))
    if kind == kinds.DECIMAL:
        whole = "".join(chance.choices("0123456789", k=chance.randrange(1, precision - scale + 2)))
        fraction = "".join(chance.choices("0123456789", k=scale))
        return (chance.choice(("", "-")) + whole + ("." + fraction if scale else "")).encode()
    if kind in (kinds.DOUBLE, kinds.FLOAT):
        number_ = chance.choice((0.0, -0.0, 1e300, 3.5e38, chance.gauss(0, 1), chance.randrange(10**9) / 100))
        return repr(number_).encode()
    if kind == kinds.YEAR:
        return chance.choice((b"0000", b"1901", b"2155", b"2156", b"70", b"00"))
    if kind == images.DOCUMENT:
        return chance.choice((b"1", b"[1.5, null]", b'{"a": "\xc3\xa4"}', b"{"))
    fraction_ = b".%0*d" % (scale, chance.randrange(10**scale)) if scale else b""
    clock = b"%02d:%02d:%02d" % (chance.randrange(24), chance.randrange(60), chance.randrange(61))
    if kind == kinds.TIME2:
        return chance.choice((b"", b"-", b"8")) + clock + fraction_
    date = b"%04d-%02d-%02d" % (chance.choice((0, 1970, 2024, 9999)), chance.randrange(14), chance.randrange(32))
    return date if kind == kinds.DATE else date + b" " + clock + fraction_
