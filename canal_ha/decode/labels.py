"""The labels of ENUM and SET columns in canal's mysqlType text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_LABEL = re.compile(r"'((?:[^']|'')*)'|(?:0x|x')([0-9a-f]+)'?|(?:0b|b')([01]+)'?", re.IGNORECASE)
_KEPT_CHARACTERS = 1 << 14  # of a text whose labels are kept: a server takes 65,535 labels
_TYPE = re.compile(r"\s*(enum|set)\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)


def labels_of(mysql_type: str) -> tuple[str, ...]:
    """Return the labels as the server has them; () if the text is not of an ENUM or SET.

    The text may be a statement's own. A label can be a hexadecimal or binary literal there: the bytes of a UTF-8 text,
    else it is left as written, because the charset is unknown. The server cuts trailing blanks off.
    """
    return _kept(mysql_type) if len(mysql_type) <= _KEPT_CHARACTERS else _labels_of(mysql_type)


def _labels_of(mysql_type: str) -> tuple[str, ...]:
    found = _TYPE.fullmatch(mysql_type)
    if found is None:
        return ()
    labels = tuple(map(_label, _LABEL.finditer(found[2])))
    cut = tuple(label.rstrip(" ") for label in labels)
    return cut if len(set(cut)) == len(set(labels)) else labels  # in charset binary, blanks tell labels apart


_kept = lru_cache(1024)(_labels_of)


def with_labels(mysql_type: str, labels: Iterable[str]) -> str:
    """Return the text of an ENUM or SET with other labels."""
    name = mysql_type.partition("(")[0]
    quoted = ("'" + label.replace("'", "''") + "'" for label in labels)
    return f"{name}({','.join(quoted)})"


def _label(found: re.Match[str]) -> str:
    quoted, digits, bits = found.groups()
    if quoted is not None:
        return quoted.replace("''", "'")
    number = int(digits, 16) if digits is not None else int(bits, 2)
    size = (len(digits) + 1) // 2 if digits is not None else (len(bits) + 7) // 8
    try:
        return number.to_bytes(size, "big").decode()
    except UnicodeDecodeError:
        return found[0]


def labelled(number: int, labels: tuple[str, ...], *, several: bool) -> str:
    """Return the text that SELECT gives.

    number: the index of a label from 1; 0 gives "". Of a SET: the mask of its labels.
    several: whether it is a SET.
    Raises ValueError if the declaration lacks a label.
    """
    if number < 0 or (number >> len(labels) if several else number > len(labels)):
        raise ValueError(f"{number} is no value of a column with {len(labels)} labels")
    if several:
        return ",".join(label for bit, label in enumerate(labels) if number >> bit & 1)
    return labels[number - 1] if number else ""
