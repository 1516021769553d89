"""Configuration keys, from canal_ha.config.keys."""

from __future__ import annotations

import re
from pathlib import Path

from canal_ha.config.keys import KEYS, LIVE, Key, KeyFile
from docs.generate.markdown import code, prose, table

CONF = Path(__file__).parents[2] / "conf"
FILES = (CONF / "canal.properties", CONF / "example" / "instance.properties")

TITLES = {
    KeyFile.NODE: "Keys of the node",
    KeyFile.SHARED: "Keys of every destination, with defaults for all of them",
    KeyFile.INSTANCE: "Keys of one destination",
}
PLACES = {
    KeyFile.NODE: "These keys stand in `canal.properties`. A change needs a restart of the node, except where it says "
    "otherwise; an alarm names the keys.",
    KeyFile.SHARED: "These keys stand in `canal.properties`, as the default of all destinations, or in the "
    "`instance.properties` of one destination.",
    KeyFile.INSTANCE: "These keys stand in `instance.properties`. A value in `canal.properties` is the default of all "
    "destinations.",
}


def own_keys() -> frozenset[str]:
    """Return the keys that canal does not have: those whose comment in conf/ begins with (ours)."""
    found, comment = set(), ""
    for line in (line for file in FILES for line in file.read_text(encoding="utf-8").splitlines()):
        setting = re.fullmatch(r"#?([A-Za-z][\w.]+) =.*", line)
        if setting and comment.startswith("(ours)"):
            found.add(setting[1])
        comment = f"{comment} {line[1:].strip()}".strip() if line.startswith("# ") else ""
    return frozenset(found)


def row(key: Key[object], own: frozenset[str]) -> tuple[str, ...]:
    """Return one line of the table."""
    default = "blank" if not key.default else code(key.default)
    meaning = prose(key.meaning[:1].upper() + key.meaning[1:] + ".")
    if key.name in LIVE:
        meaning += " A running node follows changes."
    if key.secret:
        meaning += " Secret: its value is never shown."
    unit = f"; unit: {prose(key.unit)}" if key.unit else ""
    return (
        code(key.name, anchor=key.name.replace(".", "-").lower()),
        prose(key.kind.expected) + unit,
        default,
        "canal-ha" if key.name in own else "canal",
        meaning,
    )


def page() -> str:
    """Return all keys, by the file they stand in."""
    own = own_keys()
    parts = []
    for place, title in TITLES.items():
        rows = [row(key, own) for key in KEYS if key.place is place]
        parts.append(
            f"## {title}\n\n{PLACES[place]}\n\n" + table(("key", "value", "default", "known to", "meaning"), rows)
        )
    return "\n".join(parts)
