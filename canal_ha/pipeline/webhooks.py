"""Rows as signed POST requests: how they are cut, named and signed, and what an answer means. Pure.

The header `Idempotency-Key` is RUN.FIRST.DIGEST: the run of the pipeline, the number of the request's first row in this
run, from 0, and 128 bits of the body's SHA-256 in hexadecimal digits. Requests with equal keys have equal bodies, so a
receiver may drop the second one. After a crash the rows can be cut in another way, so a repeated row can come in a
request with another key. It has the same number and the same text.

The signature is that of Standard Webhooks (www.standardwebhooks.com): HMAC-SHA256 of `id.timestamp.body`, in base64.
The id, `webhook-id`, is the idempotency key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from hashlib import sha256

LONGEST_PAUSE_S = 3600.0  # that an answer can ask for
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.2, 30.0
_LATER = frozenset({408, 425, 429})
_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request.

    key: see the module.
    first: number of its first row in the run, from 0.
    rows: how many rows it has.
    body: JSON lines, or a JSON array.
    """

    key: str
    first: int
    rows: int
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Cut:
    """How rows are cut into requests. A row that is larger than `size_bytes` is sent alone.

    array: a JSON array instead of JSON lines.
    rows: most rows of a request.
    size_bytes: most bytes of a body.
    """

    array: bool
    rows: int
    size_bytes: int

    @property
    def content_type(self) -> str:
        """The media type of the bodies."""
        return "application/json" if self.array else "application/x-ndjson"

    def deliveries(self, lines: Iterable[str], run: str, first: int) -> Iterator[Delivery]:
        """Yield the requests of a commit, in order.

        lines: its rows as JSON objects.
        run: of the pipeline.
        first: number of the first row.
        """
        held, size = list[bytes](), 2
        for line in lines:
            raw = line.encode()
            if held and (len(held) >= self.rows or size + len(raw) + 1 > self.size_bytes):
                yield self._delivery(held, run, first)
                first, held, size = first + len(held), [], 2
            held.append(raw)
            size += len(raw) + 1
        if held:
            yield self._delivery(held, run, first)

    def _delivery(self, rows: list[bytes], run: str, first: int) -> Delivery:
        body = b"[" + b",".join(rows) + b"]" if self.array else b"\n".join(rows) + b"\n"
        return Delivery(f"{run}.{first}.{sha256(body).hexdigest()[:_DIGITS]}", first, len(rows), body)


def may_succeed_later(status: int) -> bool:
    """Return whether a repeated request may get another answer."""
    return status >= 500 or status in _LATER


def asked_pause(retry_after: str | None, now: float) -> float:
    """Return the seconds that the header `Retry-After` asks for, at most an hour; 0.0 without a valid header.

    retry_after: its value, seconds or a date.
    now: seconds since 1970.
    """
    if retry_after is None:
        return 0.0
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        asked = float(text)
    else:
        try:
            moment = parsedate_to_datetime(text)
            asked = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
        except (ValueError, OverflowError):  # numbers that no date takes
            return 0.0
    return min(max(asked, 0.0), LONGEST_PAUSE_S)


def own_pause(failures: int, chance: float) -> float:
    """Return the seconds to wait after a failed request.

    failures: how many in a row, from 1.
    chance: a random number from 0 to 1, so that many senders do not come back at once.
    """
    return min(_FIRST_PAUSE_S * 2.0 ** min(failures - 1, 20), _MOST_PAUSE_S) * (0.5 + chance / 2)
