"""Benchmarks against other programs on this machine: the same rows, interleaved rounds, medians."""
