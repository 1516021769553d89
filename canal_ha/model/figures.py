"""Readable durations and sizes. A negative figure is unknown and prints as `-`."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Format a duration in at most two units, from tenths of a second to days."""
    if seconds < 0:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    if hours < 1:
        return f"{minutes} min {int(seconds) % 60} s"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def size(count: int) -> str:
    """Format a number of bytes in binary units."""
    if count < 0:
        return "-"
    value, unit = float(count), 0
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    while value >= 1024 and unit < len(units) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{value:.1f} {units[unit]}"
