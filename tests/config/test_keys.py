"""The table of keys, and its documentation in the shipped files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from canal_ha.config.keys import KEYS, Key, KeyFile
from canal_ha.config.load import load

CONF = Path(__file__).parents[2] / "conf"


def documented(path: Path) -> dict[str, str]:
    """Return key -> the comment above its line, as one line of text. Settings in comments count."""
    result, comment = {}, ""
    for line in path.read_text().splitlines():
        match = re.fullmatch(r"#?([A-Za-z][\w.]+) =.*", line)
        if match:
            result[match[1]] = comment
        comment = f"{comment} {line[1:].strip()}" if line.startswith("# ") else ""
    return result


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_every_key_is_documented_with_unit_and_default(key: Key[object]) -> None:
    """The file of a key has its line and, above it, the key's meaning, unit and default."""
    comments = documented(
        CONF / ("example/instance.properties" if key.place is KeyFile.INSTANCE else "canal.properties")
    )
    assert key.name in comments
    comment = comments[key.name]
    assert key.meaning[1:] in comment
    assert f"Default: {key.default or 'blank'}.".replace("\\", "\\\\") in comment
    assert not key.unit or f"Unit: {key.unit}." in comment


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_every_default_is_readable(key: Key[object]) -> None:
    """A key's own kind can read its default, written as in a file."""
    key.kind.read(key.default)


class Asked(dict[str, str]):
    """An environment that records which names are asked for."""

    def __init__(self, **values: str) -> None:
        super().__init__(values)
        self.names: set[str] = set()

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


def test_every_key_is_read() -> None:
    """Loading a configuration reads every key of the table."""
    environ = Asked(
        CANAL_INSTANCE_STANDBY_ADDRESS="db:3306",
        CANAL_INSTANCE_MASTER_SSLMODE="REQUIRED",
        CANAL_INSTANCE_STANDBY_SSLMODE="REQUIRED",
        CANAL_SERVERMODE="kafka",
        KAFKA_BOOTSTRAP_SERVERS="kafka:9092",
        CANAL_MQ_TOPIC="rows",
    )
    load(CONF, [], environ)
    assert {key.name for key in KEYS} - environ.names == set()


def test_names_are_unique() -> None:
    """Each key has one line in the table."""
    assert len({key.name for key in KEYS}) == len(KEYS)
