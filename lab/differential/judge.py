"""Compares delivered rows with steps: the rows before a step, changed as delivered, must be the rows after it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from canal_ha.client.rows import Row, Value
from lab.differential.steps import At, Rows, Step, Values
from lab.differential.values import same, unsure
from lab.differential.world import Column, Name, full


@dataclass(frozen=True, slots=True)
class Wrong:
    """One difference. text: what was expected and what came."""

    step: Step
    table: Name
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """rows: the number of compared row changes."""

    rows: int
    wrong: tuple[Wrong, ...]


def judge(steps: Iterable[Step], delivered: Sequence[Row], start: At, end: At, *, loose: bool = False) -> Verdict:
    """Compare what one reader was given for the steps that lie completely between two positions.

    steps: what ran, in order.
    delivered: row changes in order.
    start, end: what the reader has read completely.
    loose: compare only the names of columns for which a value's type may be unknown.
    """
    count, wrong, index = 0, [], 0
    for step in steps:
        if step.start < start or step.end > end:
            continue
        changes = []
        while index < len(delivered) and _place(delivered[index]) < step.end:
            if _place(delivered[index]) >= step.start:
                changes.append(delivered[index])
            index += 1
        count += len(changes)
        wrong += _compared(step, changes, loose)
    return Verdict(count, tuple(wrong))


def _place(row: Row) -> At:
    return row.journal, row.offset


def _compared(step: Step, changes: Sequence[Row], loose: bool) -> list[Wrong]:
    by_table: dict[Name, list[Row]] = {name: [] for name in step.rows}
    for change in changes:
        by_table.setdefault((change.schema, change.table), []).append(change)
    found = []
    for name, own in by_table.items():
        before, after = step.rows.get(name, (Rows(), Rows()))
        if loose:
            before, after = _loosened(before), _loosened(after)
        text = _difference(before, after, own, logs=name in step.rows, loose=loose)
        if text:
            found.append(Wrong(step, name, text))
    return found


def _difference(before: Rows, after: Rows, changes: Sequence[Row], *, logs: bool, loose: bool) -> str:
    """Return how the changes fail to lead from one state of a table to the other; "" if they do not fail."""
    if changes and not logs:
        return f"the statement logs no rows of this table, but came: {_shown(changes)}"
    state = Counter(before.values)
    for change in changes:
        for side, columns in ((change.before, before.columns or after.columns), (change.after, after.columns)):
            if side is None:
                continue
            row = _values(side, columns, loose)
            if side is change.after:
                state[row] += 1
            elif state[row]:
                state[row] -= 1
            else:
                return f"no row was\n      {row}\n    there were\n      {_lines(state, row)}"
    expected = Counter(after.values)
    if +state == expected:
        return ""
    return f"came\n      {_lines(state - expected)}\n    but SELECT says\n      {_lines(expected - state)}"


def _values(side: Mapping[str, Value], columns: Sequence[Column], loose: bool) -> Values:
    known = {column.name: column for column in columns}
    row = tuple((name, same(known[name], value) if name in known else value) for name, value in side.items())
    return _loosely(row, columns) if loose else row


def _loosened(rows: Rows) -> Rows:
    return replace(rows, values=tuple(_loosely(row, rows.columns) for row in rows.values))


def _loosely(row: Values, columns: Sequence[Column]) -> Values:
    """Replace values of text, bytes and JSON that are not NULL."""
    hidden = {column.name for column in columns if unsure(column)}
    return tuple((name, "..." if name in hidden and value is not None else value) for name, value in row)


def _lines(rows: Mapping[Values, int], like: Values = ()) -> str:
    """Return some rows, those first that have most in common with another one."""
    present = [row for row, count in rows.items() if count > 0]
    present.sort(key=lambda row: -sum(pair in like for pair in row))
    return "\n      ".join(map(str, present[:3])) or "(no row)"


def _shown(changes: Sequence[Row]) -> str:
    return "; ".join(f"{row.type} {full((row.schema, row.table))} {row.before} {row.after}" for row in changes[:3])
