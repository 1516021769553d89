"""Names of a source's schemas and tables as parts of paths. Pure.

MySQL and MariaDB allow `../../payroll/salaries` as a table's name. The escape is a tilde with two digits, not a percent
sign: delta-rs decodes `%2F` in what it is given, and would make a separator of it again.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote

LONGEST = 200  # characters; file systems take 255 bytes
_UNSAFE = re.compile(rb"[^A-Za-z0-9_$-]")
_PLAIN = re.compile(r"[^/\\\x00-\x1f\x7f\ud800-\udfff]+")
_ESCAPED = re.compile(r"([A-Za-z0-9_$-]|~[0-9A-Fa-f]{2}|~-)*")


def segment(name: str) -> str:
    """One segment of a path, another one for every name. ASCII letters, digits, `_`, `$` and `-` stay as they are.

    A name that gets too long ends in the digest of all of it.
    """
    escaped = _UNSAFE.sub(lambda found: b"~%02X" % found[0][0], name.encode("utf-8", "surrogatepass")).decode()
    if 0 < len(escaped) <= LONGEST:
        return escaped
    digest = hashlib.sha256(escaped.encode()).hexdigest()
    return f"{escaped[: LONGEST - len(digest) - 2]}~-{digest}"


def former(name: str, *, uri: bool) -> str | None:
    """The segment that versions before this one used for a name: the name itself. None where that was no segment of its
    own, or may be another name's today: delta-rs decodes `%2F`, and `a~2Eb` is where table `a.b` is.

    uri: the path is a URI, where `?` and `#` end it
    """
    own = _PLAIN.fullmatch(name) and name not in (".", "..") and unquote(name) == name
    cut = uri and ("?" in name or "#" in name)
    taken = "~" in name and _ESCAPED.fullmatch(name)
    return name if own and not cut and not taken else None
