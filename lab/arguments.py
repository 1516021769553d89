"""Arguments of the runs in lab/, checked as argparse types."""

from __future__ import annotations

from argparse import ArgumentTypeError

INTERRUPTED = 130  # the exit code of a program that SIGINT ended


def count(text: str) -> int:
    """Return a whole number of at least 1. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or not int(text):
        raise ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return int(text)


def positive(text: str) -> float:
    """Return a number above 0. Raises ArgumentTypeError."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"{text!r}: expected a number above 0")
    return number
