"""The savepoints of one transaction, as both servers log them: SAVEPOINT `name` and ROLLBACK TO `name`."""

from __future__ import annotations

from collections.abc import Sequence

import canal_ha.decode.kernel.primitives as p
from canal_ha.decode.entries import statement_at

SAVEPOINT = "SAVEPOINT "  # MySQL sql/binlog.cc, binlog_savepoint_set
ROLLBACK_TO = "ROLLBACK TO "


def behind(keyword: str, body: bytes) -> bytes:
    """Return the name in a QUERY event's statement, which begins with this keyword."""
    return body[statement_at(body) + len(keyword) :]


def last_of_name(marks: Sequence[bytes], name: bytes) -> int:
    """Return the index of the savepoint that a name stands for: the last one set under it. Raises Broken.

    marks: the names of all savepoints, in order.
    Names compare without case, as on the server.
    """
    wanted = _folded(name)
    for index in reversed(range(len(marks))):
        if _folded(marks[index]) == wanted:
            return index
    text = name.decode("utf-8", "replace")
    raise p.Broken(f"{ROLLBACK_TO}{text}: this transaction has set no such savepoint")


def _folded(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape").casefold()
