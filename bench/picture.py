"""Draws the scaling as SVG: total rows a second over 1 to 8 destinations and over 1 to 8 client ids."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.scaling import COUNTS, Scaling

WIDTH, HEIGHT = 760, 330
PANEL, GAP, LEFT, TOP, FLOOR = 300, 60, 70, 50, 260
COLOURS = {"mariadb": "#1f6feb", "mysql": "#d4740c"}
NAMES = {"mariadb": "MariaDB", "mysql": "MySQL"}
STEPS = (1, 2, 5)


def svg(scalings: Sequence[Scaling]) -> str:
    """Draw the picture. Points are medians of the rounds, labelled with the node's memory."""
    found = {
        (kind, database): [
            (count, rate, memory) for count in COUNTS for rate, memory in _point(scalings, kind, database, count)
        ]
        for kind in ("destinations", "client ids")
        for database in COLOURS
    }
    top = max((rate for points in found.values() for _, rate, _ in points), default=1.0)
    step = _step(top)
    limit = step * (int(top / step) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="14">Rows a second through one node, all readers together'
        " (and its peak memory)</text>",
    ]
    for number, kind in enumerate(("destinations", "client ids")):
        left = LEFT + number * (PANEL + GAP)
        parts += _frame(left, kind, step, limit, labels=number == 0)
        for database, colour in COLOURS.items():
            parts += _line(left, found[kind, database], limit, colour)
    drawn = [database for database in COLOURS if any(found[kind, database] for kind in ("destinations", "client ids"))]
    for number, database in enumerate(drawn):
        x = LEFT + number * 110
        parts.append(f'<rect x="{x}" y="{HEIGHT - 22}" width="12" height="12" fill="{COLOURS[database]}"/>')
        parts.append(f'<text x="{x + 18}" y="{HEIGHT - 12}">{NAMES[database]}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _point(scalings: Sequence[Scaling], kind: str, database: str, count: int) -> list[tuple[float, float]]:
    """Return rows a second and bytes of memory; empty if not measured."""
    found = [one for one in scalings if (one.kind, one.database, one.count) == (kind, database, count)]
    if not found:
        return []
    rate = statistics.median(one.rows / one.seconds for one in found)
    return [(rate, statistics.median(one.memory_bytes for one in found))]


def _step(top: float) -> float:
    """Return a round distance for about five lines."""
    size = 10.0 ** (len(str(int(top))) - 2)
    return next((size * step for step in (*STEPS, 10, 20) if top / (size * step) <= 6), size * 50)


def _y(rate: float, limit: float) -> float:
    return FLOOR - (FLOOR - TOP) * rate / limit


def _x(left: int, count: int) -> float:
    return left + 20 + COUNTS.index(count) * (PANEL - 40) / (len(COUNTS) - 1)


def _frame(left: int, kind: str, step: float, limit: float, *, labels: bool) -> list[str]:
    parts = []
    for number in range(round(limit / step) + 1):
        y = _y(number * step, limit)
        parts.append(f'<line x1="{left}" y1="{y:.0f}" x2="{left + PANEL}" y2="{y:.0f}" stroke="#d8dee4"/>')
        if labels:
            text = f"{number * step / 1e6:.1f} M" if limit >= 1e6 else f"{number * step / 1e3:g} k"
            text = text if number else "0"
            parts.append(f'<text x="{left - 8}" y="{y + 4:.0f}" text-anchor="end">{text}</text>')
    parts += [
        f'<text x="{_x(left, count):.0f}" y="{FLOOR + 18}" text-anchor="middle">{count}</text>' for count in COUNTS
    ]
    parts.append(f'<text x="{left + PANEL / 2:.0f}" y="{FLOOR + 36}" text-anchor="middle">{kind}</text>')
    return parts


def _line(left: int, points: Sequence[tuple[int, float, float]], limit: float, colour: str) -> list[str]:
    places = [(_x(left, count), _y(rate, limit), memory) for count, rate, memory in points]
    path = " ".join(f"{x:.0f},{y:.0f}" for x, y, _ in places)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'] if path else []
    for x, y, memory in places:
        parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3.5" fill="{colour}"/>')
        parts.append(
            f'<text x="{x:.0f}" y="{y - 8:.0f}" text-anchor="middle" fill="{colour}">{memory / 1e6:.0f} MB</text>'
        )
    return parts
