"""Text in every charset that connectionCharset is likely to name, as Java 17 reads it."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from canal_ha.config.kinds import charset
from canal_ha.decode.java_text import decode
from canal_ha.decode.values import recoded

RECORDED: dict[str, Any] = json.loads(
    gzip.decompress((Path(__file__).parents[1] / "golden" / "java17_charsets.json.gz").read_bytes())
)


@pytest.mark.parametrize("name", RECORDED)
def test_as_java_reads_it(name: str) -> None:
    """Random strings, and by their digest strings of one and two bytes, give the same text as in Java."""
    codec = charset().read(name)
    for raw, text in RECORDED[name]["strings"]:
        assert decode(bytes.fromhex(raw), codec) == text
        assert recoded(bytes.fromhex(raw), codec) == text.encode()
    short = [bytes([first]) for first in range(256)]
    short += [bytes([first, second]) for first in range(128, 256) for second in range(256)]
    digest = hashlib.sha256()
    for data in short:
        digest.update(decode(data, codec).encode() + b"\xff")
    assert digest.hexdigest() == RECORDED[name]["short"]


def test_longer_charsets() -> None:
    """GB 18030, EUC-JP and UTF-16 are read as in Java where Python reads them differently."""
    assert decode(b"\xa6\xd9\xfe\xa0a", charset().read("GB18030")) == "\ufe10\u9fbba"
    assert decode(b"\xa1\xbd\xa4\xa2", charset().read("EUC-JP")) == "\u2014\u3042"
    assert decode(b"\x4e\x2d", charset().read("UTF-16")) == "\u4e2d"
