"""Replaces Cython if the kernel runs interpreted and Cython is not installed."""

from contextlib import nullcontext

nogil = nullcontext()
