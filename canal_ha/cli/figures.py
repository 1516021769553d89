"""Readable durations, sizes and texts. A negative figure is unknown and prints as `-`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from canal_ha.model.excerpt import printable


def lines(text: str) -> str:
    """Return a text from outside with its line ends, and escapes for all else that steers a terminal."""
    return "\n".join(map(printable, text.split("\n")))


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


def speed_of(state: Mapping[str, Any]) -> str:
    """Format how fast a snapshot is, and how long it will take; "" if nothing runs. Older nodes do not say it."""
    if state["phase"] != "running" or "rows_per_s" not in state:
        return ""
    left = f", {duration(state['left_s'])} left" if state.get("left_s", -1) >= 0 else ""
    return f"{state['rows_per_s']:,.0f} rows/s{left}"


def snapshot_line(state: Mapping[str, Any]) -> str:
    """Format the state of a snapshot, as a node's answer has it."""
    tables = len(state["tables"])
    total = f" of about {state['total']:,}" if state["total"] else ""
    text = (
        f"snapshot {state['id']} {state['phase']}: {state['rows']:,}{total} rows, {state['table']} of {tables} tables"
    )
    if speed := speed_of(state):
        text += f", {speed}"
    reading = state.get("reading") or state["tables"][max(0, state["table"]) :]
    if state["phase"] == "running" and state.get("attempt_rows") and reading:
        text += f" ({reading[0]} has no key: a fail-over begins it again)"
    return printable(f"{text}: {state['error']}" if state["error"] else text)
