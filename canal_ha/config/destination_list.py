"""Changes canal.destinations in the text of canal.properties; everything else in the file stays as it is."""

from __future__ import annotations

from collections.abc import Sequence

import javaproperties

from canal_ha.config import keys


def names_in(text: str) -> tuple[str, ...] | None:
    """Return the names that canal.destinations lists; None if they are not plain, because of a placeholder.

    text: of canal.properties.
    """
    value = ""
    for element in javaproperties.parse(text):
        if isinstance(element, javaproperties.KeyValue) and element.key.strip() == keys.DESTINATIONS.name:
            value = element.value.strip()
    try:
        return None if "${" in value else keys.DESTINATIONS.kind.read(value)
    except ValueError:
        return None


def with_names(text: str, names: Sequence[str]) -> str:
    """Return the text with these names in canal.destinations, in the place of its last line or at the end.

    text: of canal.properties.
    names: of the destinations.
    """
    line = javaproperties.join_key_value(keys.DESTINATIONS.name, ",".join(names), separator=" = ") + "\n"
    pieces = [
        (element.source, isinstance(element, javaproperties.KeyValue) and element.key.strip() == keys.DESTINATIONS.name)
        for element in javaproperties.parse(text)
    ]
    last = max((index for index, (_, is_list) in enumerate(pieces) if is_list), default=-1)
    if last < 0:
        return (text if not text or text.endswith(("\n", "\r")) else f"{text}\n") + line
    return "".join(line if index == last else source for index, (source, _) in enumerate(pieces))
