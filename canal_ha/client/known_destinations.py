"""What to tell somebody whose destination no node has: the destinations that there are. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from canal_ha.model.excerpt import excerpt, printable, some
from canal_ha.model.near import did_you_mean

_COMPARED_MOST = 1000  # anybody may write to ZooKeeper


def not_found(destination: str, place: str, known: Iterable[str]) -> str:
    """Return a sentence about a destination that nobody runs.

    destination: its name.
    place: what was asked, as `ZooKeeper`.
    known: the destinations that it has; five are named, and the one whose name is near.
    """
    names = sorted(map(printable, {*known} - {destination}))
    near = did_you_mean(destination, names[:_COMPARED_MOST])
    return (
        f"no node has the destination {excerpt(printable(destination))}{near}; {place} has {some(names) or 'no other'}"
    )
