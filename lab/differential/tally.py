"""Counts of a run, and the table that shows them. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

EXPLAINED = {
    "changed, gone from the server": (
        r"the last known statement about it is: .*the table does not exist on the server any more",
        "a node that did not see the table's creation cannot ask for a table that was dropped or renamed since",
    ),
    "changed, different now": (
        r"the last known statement about it is: .*current definition does not agree",
        "a node that did not see the table's creation reads a change, whose result it cannot know",
    ),
    "changed, perhaps again": (
        r"the last known statement about it is: .*current definition may be a later one",
        "the table is changed again between the row and the present",
    ),
    "unseen, gone from the server": (
        r"no statement in the binlog since the stream's start.*does not exist on the server any more",
        "the table was dropped or renamed, and the node has no history from before",
    ),
    "unseen, different now": (
        r"no statement in the binlog since the stream's start.*current definition does not agree",
        "the table was changed since, and the node has no history from before",
    ),
    "unseen, perhaps changed": (
        r"no statement in the binlog since the stream's start.*current definition may be a later one",
        "the table is changed between the row and the present, and the node has no history from before",
    ),
    "converted, perhaps": (
        r"charset of .* is not known: it depends on the server's version",
        "MySQL 5.6 passes over a conversion of no text, and the table is changed again before the present",
    ),
}
"""Reasons for which a node may refuse a row: name -> (pattern of the refusal, explanation)."""

UNEXPLAINED = "NOT EXPLAINED"

WITHOUT_HISTORY = frozenset({"cold"})
"""Situations in which a node may refuse rows; in all others every statement was seen, so every row is known."""


def reason(situation: str, refusal: str, *, excused: bool = False) -> str:
    """Return the name of the reason for a refusal; UNEXPLAINED and its text if there is none.

    excused: nodes cannot know everything, because statements were not logged.
    """
    if excused or situation in WITHOUT_HISTORY:
        for name, (pattern, _) in EXPLAINED.items():
            if re.search(pattern, refusal, re.DOTALL):
                return name
    return f"{UNEXPLAINED}: {refusal}"


@dataclass
class Situation:
    """What the readers of one situation had. skipped: steps that were not compared, because of a refusal."""

    rows: int = 0
    wrong: int = 0
    skipped: int = 0
    refused: Counter[str] = field(default_factory=Counter)


@dataclass
class Tally:
    """A run's counts. failures: texts of wrong rows and of refusals that nothing explains."""

    statements: int = 0
    not_taken: int = 0
    situations: dict[str, Situation] = field(default_factory=lambda: defaultdict(Situation))
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the counts of another run."""
        self.statements += other.statements
        self.not_taken += other.not_taken
        self.failures += other.failures
        for name, theirs in other.situations.items():
            mine = self.situations[name]
            mine.rows += theirs.rows
            mine.wrong += theirs.wrong
            mine.skipped += theirs.skipped
            mine.refused += theirs.refused

    def table(self, title: str) -> str:
        """Return the counts as lines of text."""
        lines = [f"{title}: {self.statements} statements, of which the server refused {self.not_taken}"]
        lines.append(f"  {'situation':<12} {'rows':>9} {'wrong':>6} {'refused':>8} {'skipped':>8}")
        for name, each in self.situations.items():
            refused = sum(each.refused.values())
            lines.append(f"  {name:<12} {each.rows:>9} {each.wrong:>6} {refused:>8} {each.skipped:>8}")
            for why, count in each.refused.most_common():
                lines.append(f"    {count} x {why[:300]}")
                if why in EXPLAINED:
                    lines.append(f"      {EXPLAINED[why][1]}")
        return "\n".join(lines)
