"""Names of a source's schemas and tables as parts of paths. Pure.

MySQL and MariaDB allow `../../payroll/salaries` as a table's name. The escape is a tilde with two digits, not a percent
sign: delta-rs decodes `%2F` in what it is given, and would make a separator of it again.
"""

from __future__ import annotations

import hashlib
import re

LONGEST = 200  # characters; file systems take 255 bytes
_UNSAFE = re.compile(rb"[^A-Za-z0-9_$-]")
_PLAIN = re.compile(r"[^/\\%~?#:\x00-\x1f]+")


def segment(name: str) -> str:
    """One segment of a path, another one for every name. ASCII letters, digits, `_`, `$` and `-` stay as they are.

    A name that gets too long ends in the digest of all of it.
    """
    escaped = _UNSAFE.sub(lambda found: b"~%02X" % found[0][0], name.encode("utf-8", "surrogatepass")).decode()
    if 0 < len(escaped) <= LONGEST:
        return escaped
    digest = hashlib.sha256(escaped.encode()).hexdigest()
    return f"{escaped[: LONGEST - len(digest) - 2]}~-{digest}"


def former(name: str) -> str | None:
    """The segment that versions before this one used for a name, None where that was no segment of its own."""
    return name if _PLAIN.fullmatch(name) and name not in (".", "..") else None
