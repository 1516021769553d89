"""Stands in for Cython where the kernel runs interpreted and nobody has installed it."""

from contextlib import nullcontext

nogil = nullcontext()
