"""Compares delivered rows with steps: the rows before a step, changed as delivered, must be the rows after it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from canal_ha.client.rows import Row, Value
from lab.differential.steps import At, Rows, Step, Values
from lab.differential.values import same
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


def judge(steps: Iterable[Step], delivered: Sequence[Row], start: At, end: At, *, partial: bool = False) -> Verdict:
    """Compare what one reader was given for the steps that lie completely between two positions.

    steps: what ran, in order.
    delivered: row changes in order.
    start, end: what the reader has read completely.
    partial: row images may lack columns (binlog_row_image other than FULL).
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
        wrong += _compared(step, changes, partial)
    return Verdict(count, tuple(wrong))


def _place(row: Row) -> At:
    return row.journal, row.offset


def _compared(step: Step, changes: Sequence[Row], partial: bool) -> list[Wrong]:
    by_table: dict[Name, list[Row]] = {name: [] for name in step.rows}
    for change in changes:
        by_table.setdefault((change.schema, change.table), []).append(change)
    found = []
    for name, own in by_table.items():
        before, after = step.rows.get(name, (Rows(), Rows()))
        text = _difference(before, after, own, logs=name in step.rows, partial=partial)
        if text:
            found.append(Wrong(step, name, text))
    return found


def _difference(before: Rows, after: Rows, changes: Sequence[Row], *, logs: bool, partial: bool) -> str:
    """Return how the changes fail to lead from one state of a table to the other; "" if they do not fail."""
    if changes and not logs:
        return f"the statement logs no rows of this table, but came: {_shown(changes)}"
    state = list(before.values)
    for change in changes:
        old = tuple((column.name, _ANY) for column in after.columns)
        if change.before is not None:
            row = _values(change.before, before.columns or after.columns)
            found = _like(row, state, partial)
            if found is None:
                return f"no row was\n      {row}\n    there were\n      {_lines(state, row)}"
            old = state.pop(found)
        if change.after is not None:
            row = _values(change.after, after.columns)
            state.append(_changed(old, row) if partial else row)
    expected = list(after.values)
    unexpected = [row for row in sorted(state, key=_unknown) if not _taken(row, expected)]
    if not unexpected and not expected:
        return ""
    return f"came\n      {_lines(unexpected)}\n    but SELECT says\n      {_lines(expected)}"


_ANY = ...
"""Stands for a value that no image has told."""


def _values(side: Mapping[str, Value], columns: Sequence[Column]) -> Values:
    known = {column.name: column for column in columns}
    return tuple((name, same(known[name], value) if name in known else value) for name, value in side.items())


def _like(given: Values, rows: Sequence[Values], partial: bool) -> int | None:
    """Return the index of a row that has these columns and values, and no others unless images are partial."""
    names = {name for name, _ in given}
    for index, row in enumerate(rows):
        own = tuple(pair for pair in row if pair[0] in names) if partial else row
        if _agree(given, own):
            return index
    return None


def _taken(row: Values, expected: list[Values]) -> bool:
    """Remove a row like this one from those that are expected; return whether there was one."""
    found = next((index for index, other in enumerate(expected) if _agree(row, other)), None)
    if found is not None:
        del expected[found]
    return found is not None


def _agree(one: Values, other: Values) -> bool:
    """Return whether two rows have the same columns in the same order, and the same values where both tell them."""
    return len(one) == len(other) and all(
        name == same_name and (value == same_value or value is _ANY or same_value is _ANY)
        for (name, value), (same_name, same_value) in zip(one, other, strict=True)
    )


def _changed(old: Values, given: Values) -> Values:
    """Return a row after a partial image, or the image itself if it is not of this row."""
    new = dict(given)
    if [name for name, _ in old if name in new] != [*new]:
        return given
    return tuple((name, new.get(name, value)) for name, value in old)


def _unknown(row: Values) -> int:
    return sum(value is _ANY for _, value in row)


def _lines(rows: Iterable[Values], like: Values = ()) -> str:
    """Return some rows, those first that have most in common with another one."""
    present = sorted(rows, key=lambda row: -sum(pair in like for pair in row))
    return "\n      ".join(map(str, present[:3])) or "(no row)"


def _shown(changes: Sequence[Row]) -> str:
    return "; ".join(f"{row.type} {full((row.schema, row.table))} {row.before} {row.after}" for row in changes[:3])
