"""Classifies errors for the next try and builds the error that a call raises. Pure."""

from __future__ import annotations

from canal_ha.client.failover import FailureKind
from canal_ha.errors import CanalError, ConnectionLost, ServerRefused, SnapshotUnreadable

NOT_THERE = "should start first"  # the destination runs on another node, or not yet
_NOT_SUBSCRIBED = "should subscribe first"
_END = "end of range"  # at the end of a private read
_BAD_FILTER = "table filter "  # our nodes' text for an invalid filter


def kind_of(error: CanalError, *, subscribed: bool) -> FailureKind:
    """Classify an error. Refusals differ in their text. subscribed: the connection begins with a SUBSCRIPTION."""
    if isinstance(error, ConnectionLost):
        return FailureKind.LOST
    text = str(error) if isinstance(error, ServerRefused) else ""
    if NOT_THERE in text:
        return FailureKind.LOST
    if isinstance(error, ServerRefused) and error.code == SnapshotUnreadable.code:
        return FailureKind.FATAL
    if _BAD_FILTER in text or _END in text or (_NOT_SUBSCRIBED in text and not subscribed):
        return FailureKind.FATAL
    return FailureKind.REFUSED


def as_canal_says(what: str, tries: int, error: CanalError) -> CanalError:
    """Return the error that a call raises: the last one, with canal's text in front after several tries.

    what: name of the call.
    tries: number of tries.
    error: the last error.
    """
    if tries < 2:
        return error
    text = f"failed to {what} after {tries} times retry: {error}"
    raised = ServerRefused(text, error.code) if isinstance(error, ServerRefused) else ConnectionLost(text)
    raised.__cause__ = error
    return raised
