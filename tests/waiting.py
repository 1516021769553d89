"""Waiting for a condition, in tests on real servers."""

from lab.waiting import until

__all__ = ["until"]
