"""Readable texts, positions, queues and snapshots, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from canal_ha.model.excerpt import excerpt, printable, some
from canal_ha.model.figures import duration


def lines(text: str) -> str:
    """Return a text from outside with its line ends, and escapes for all else that steers a terminal."""
    return "\n".join(map(printable, text.split("\n")))


def too_late(seconds: float, most: float) -> str:
    """Say that a client is farther behind its source than --max-lag allows."""
    return f"it is {duration(seconds)} behind its source; --max-lag is {duration(most)}"


def position(value: Mapping[str, Any] | None) -> str:
    """Format journal:offset; with several sources, one for each with its number as prefix."""
    if not value:
        return "-"
    if not value.get("part"):
        return f"{value['journal']}:{value['offset']}"
    parts = sorted((value, *value.get("others", ())), key=lambda each: int(each["part"]))
    return ", ".join(f"{each['part']}/{each['journal']}:{each['offset']}" for each in parts)


def queue_line(destination: str, queue: Mapping[str, Any]) -> str:
    """Format how much Kafka has of a destination. queue: as in a node's answer."""
    lag = "lag unknown" if queue["lag_s"] < 0 else f"{duration(queue['lag_s'])} behind"
    waits = f"; the node waits for {queue['waits_for']}" if queue["waits_for"] else ""
    return (
        f"{destination}: to Kafka at {queue['servers']}: {queue['rows']} rows in {queue['commits']} transactions, up to"
        f" {position(queue['position'])}, {lag}{waits}"
    )


def queue_problems(destination: str, queue: Mapping[str, Any], max_lag: float) -> Iterator[str]:
    """Yield why Kafka does not get the changes of a destination. The reason of an error is an alarm of the node.

    destination: its name.
    queue: as in a node's answer.
    max_lag: seconds behind its source from which Kafka is a problem.
    """
    if queue["waits_for"]:
        yield f"{destination}: Kafka does not get its changes: the node waits for {queue['waits_for']}"
    if queue["lag_s"] > max_lag:
        yield f"{destination}, Kafka: {too_late(queue['lag_s'], max_lag)}"


def speed_of(state: Mapping[str, Any]) -> str:
    """Format how fast a snapshot is, and how long it will take; "" if nothing runs. Older nodes do not say it."""
    if state["phase"] != "running" or "rows_per_s" not in state:
        return ""
    left = f", {duration(state['left_s'])} left" if state.get("left_s", -1) >= 0 else ""
    return f"{state['rows_per_s']:,.0f} rows/s{left}"


def failing_of(state: Mapping[str, Any]) -> str:
    """Format why a snapshot cannot go on now; "" if nothing fails. Older nodes do not say it."""
    if state["phase"] != "running" or not state.get("failing"):
        return ""
    return f"next try in {duration(state.get('retry_in_s', 0.0))}: {excerpt(state['failing'])}"


def snapshot_line(state: Mapping[str, Any]) -> str:
    """Format the state of a snapshot, as a node's answer has it."""
    tables = len(state["tables"])
    total = f" of about {state['total']:,}" if state["total"] else ""
    text = (
        f"snapshot {state['id']} {state['phase']}: {state['rows']:,}{total} rows, {state['table']} of {tables} tables"
    )
    if speed := speed_of(state):
        text += f", {speed}"
    if left_out := state.get("left_out"):
        text += f", without {some(left_out)}"
    reading = state.get("reading") or state["tables"][max(0, state["table"]) :]
    if state["phase"] == "running" and state.get("attempt_rows") and reading:
        text += f" ({reading[0]} has no key: a fail-over begins it again)"
    if failing := failing_of(state):
        text += f"; {failing}"
    return printable(f"{text}: {state['error']}" if state["error"] else text)
