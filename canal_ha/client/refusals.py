"""What an error means for the next try, and how a caller is told of the last one. Pure."""

from __future__ import annotations

from canal_ha.client.failover import FailureKind
from canal_ha.errors import CanalError, ConnectionLost, ServerRefused

_NOT_THERE = "should start first"  # the destination runs elsewhere, or not yet
_NOT_SUBSCRIBED = "should subscribe first"
_END = "end of range"  # of a private read
_BAD_FILTER = "table filter "  # what our nodes say of a filter that is no regular expression


def kind_of(error: CanalError, *, subscribed: bool) -> FailureKind:
    """subscribed: the connection begins with a SUBSCRIPTION. A refusal has no code of its own: its text tells."""
    if isinstance(error, ConnectionLost):
        return FailureKind.LOST
    text = str(error) if isinstance(error, ServerRefused) else ""
    if _NOT_THERE in text:
        return FailureKind.LOST
    if _BAD_FILTER in text or _END in text or (_NOT_SUBSCRIBED in text and not subscribed):
        return FailureKind.FATAL
    return FailureKind.REFUSED


def as_canal_says(what: str, tries: int, error: CanalError) -> CanalError:
    """The error a call raises: the last one itself, or, after several tries, its like with canal's text in front."""
    if tries < 2:
        return error
    text = f"failed to {what} after {tries} times retry: {error}"
    raised = ServerRefused(text, error.code) if isinstance(error, ServerRefused) else ConnectionLost(text)
    raised.__cause__ = error
    return raised
