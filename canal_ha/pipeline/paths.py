"""Turns names of schemas and tables into parts of paths. Pure.

MySQL and MariaDB allow `../../payroll/salaries` as a table's name. The escape is a tilde with two digits instead of a
percent sign, because delta-rs decodes `%2F` to a separator.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote

from canal_ha.errors import SinkRefused
from canal_ha.model.excerpt import excerpt, printable

OWN = "_canal_ha"  # directory of a target's own state, beside those of schemas
LONGEST = 200  # characters; file systems take 255 bytes
_LOGIN = re.compile(r"(?<=://)(?:[^/:\s]*:\S*|[^/\s]*)@")
_UNSAFE = re.compile(rb"[^A-Za-z0-9_$-]")
_PLAIN = re.compile(r"[^/\\\x00-\x1f\x7f\ud800-\udfff]+")
_ESCAPED = re.compile(r"([A-Za-z0-9_$-]|~[0-9A-Fa-f]{2}|~[0-9A-Fa-f]?(?=~-)|~-)*")  # a digest may cut off an escape


def without_login(uri: str) -> str:
    """Return a URI, a path, or an error with one, without user name and password. A password may have `/` and `@`."""
    return _LOGIN.sub("", uri)


def segment(name: str) -> str:
    """Return a unique path segment for a name. ASCII letters, digits, `_`, `$` and `-` are not escaped.

    A segment that would be too long ends with a digest of the name.
    """
    escaped = _UNSAFE.sub(lambda found: b"~%02X" % found[0][0], name.encode("utf-8", "surrogatepass")).decode()
    if 0 < len(escaped) <= LONGEST:
        return escaped
    digest = hashlib.sha256(escaped.encode()).hexdigest()
    return f"{escaped[: LONGEST - len(digest) - 2]}~-{digest}"


def table_path(schema: str, table: str) -> str:
    """Return the path of a table below that of its target. Raises SinkRefused for a schema that is called like OWN."""
    if schema == OWN:
        raise SinkRefused(
            f"canal: table {printable(excerpt(table))} of {schema}: the target keeps its own state under this name:"
            " leave the schema out of `tables`, or give it another name with `route`"
        )
    return f"{segment(schema)}/{segment(table)}"


def former(name: str, *, uri: bool) -> str | None:
    """Return the segment that earlier versions used for a name, which is the name itself.

    None if that was not a valid segment, or may now belong to another name: delta-rs decodes `%2F`, and `a~2Eb` is the
    segment of table `a.b`.

    uri: the path is a URI, which `?` and `#` would end.
    """
    own = _PLAIN.fullmatch(name) and name not in (".", "..") and unquote(name) == name
    cut = uri and ("?" in name or "#" in name)
    taken = "~" in name and _ESCAPED.fullmatch(name)
    return name if own and not cut and not taken else None
