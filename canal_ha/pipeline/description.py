"""Description: a pipeline as its file describes it. `load` reads the file: YAML, checked with the JSON schema.

${file:PATH} and ${env:NAME} (config/outside.py) work in all texts that are values. What they give is in no error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from canal_ha.config.outside import filled, has_other_variable, has_placeholder, with_absolute_paths
from canal_ha.errors import OptionInvalid
from canal_ha.model.excerpt import excerpt, printable
from canal_ha.pipeline import schema
from canal_ha.pipeline.named_files import with_absolute_files
from canal_ha.pipeline.transforms import Transforms
from canal_ha.pipeline.yaml_text import MOST_BYTES, YamlText, nearest_line
from canal_ha.pipeline.yaml_text import Path as Place

MOST_ERRORS = 10
STATE = "/var/lib/canal-ha/pipelines"
_LATER: tuple[Place, ...] = (("source", "password"), ("spark",))  # others replace these placeholders
_AS_IT_IS = ("filter", "match", "settings")  # keys of expressions, and of Spark, which has variables of its own
_SECRET = re.compile("(?i)secret|password|passwd|token|access.?key|storage")
Engine = Literal["spark", "embedded"]
Mode = Literal["mirror", "scd2", "changelog", "events"]
Evolve = Literal["evolve", "ignore", "stop"]


@dataclass(frozen=True, slots=True)
class TargetDescription:
    """Where rows go.

    kind: its type, the name of a module of canal_ha.pipeline.targets.
    mode: mirror (the table as it is), scd2 (each version of its rows), changelog (every change), events (messages of a
        queue).
    evolve: what to do when a table's columns change.
    options: its own keys, checked against the schema, with placeholders replaced.
    names: what the file calls an option, if it has another name there.
    """

    kind: str
    mode: Mode
    evolve: Evolve = "evolve"
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    names: Mapping[str, str] = field(default_factory=dict, repr=False)

    def called(self, option: str) -> str:
        """Return what an error calls an option."""
        return self.names.get(option, option)


@dataclass(frozen=True, slots=True)
class Description:
    """A pipeline.

    file: for messages.
    name: of the pipeline.
    engine: spark or embedded.
    state: directory of what the engine itself keeps.
    tables: patterns of `schema.table`; * and ? are wildcards.
    keys: `schema.table` -> key columns of tables without a primary key.
    source: options of the source (canal_ha.pipeline.options names).
    transforms: each with one key, as in the file.
    spark: settings of the Spark engine, as in the file; placeholders are not replaced.
    why_engine: what has chosen the engine, in words.
    hidden: texts that placeholders gave; `shown` hides them.
    lines: of the values in the file.
    """

    file: str
    name: str
    engine: Engine
    state: str
    tables: tuple[str, ...]
    keys: Mapping[str, tuple[str, ...]]
    source: Mapping[str, str] = field(repr=False)
    target: TargetDescription
    transforms: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    spark: Mapping[str, Any] = field(default_factory=dict, repr=False)
    why_engine: str = ""
    hidden: frozenset[str] = field(default=frozenset(), repr=False)
    lines: Mapping[Place, int] = field(default_factory=dict, repr=False, compare=False)

    def shown(self, value: Any) -> Any:
        """Return a value of the file with `***` for what placeholders gave."""
        if isinstance(value, Mapping):
            return {key: self.shown(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.shown(each) for each in value]
        return "***" if value in self.hidden else value

    def masked(self, text: str) -> str:
        """Return a text with `***` for what placeholders gave, also inside the repr of an error that quotes another."""
        for each in sorted(filter(None, map(str.strip, self.hidden)), key=len, reverse=True):
            once = repr(each)[1:-1]
            for form in (repr(once)[1:-1], once, each):
                text = text.replace(form, "***")
        return text

    def line(self, place: Place) -> int:
        """Return the line of a value, or of the nearest one around it."""
        return nearest_line(self.lines, place)

    def takes(self, schema: str, table: str) -> bool:
        """Return whether the pipeline includes this table."""
        return any(fnmatchcase(f"{schema}.{table}", pattern) for pattern in self.tables)


def load(path: str | Path, engine: Engine | None = None) -> Description:
    """Read a file.

    engine: replaces the file's.
    Raises OptionInvalid with a line for each error: file, line and key, what is expected, and the nearest known key.
    """
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise OptionInvalid(f"{path} cannot be read: {error.strerror}") from error
    return read(raw, str(path), engine)


def read(raw: bytes, file: str, engine: Engine | None = None) -> Description:
    """Read the content of a file. file: its name; relative paths of other files start there. Raises OptionInvalid."""
    text = YamlText(raw, file)
    values = _Values(text, file)
    body = values.filled(text.value, ())
    unfilled = {line for line, _ in values.problems}
    others = schema.problems(body, text.line, values.secret) or [
        *_wrong_transforms(body.get("transforms", []), text, values),
        *_doubled_columns(body.get("keys", {}), text, values),
    ]
    wrong = sorted([*values.problems, *(each for each in others if each[0] not in unfilled)])
    if wrong:
        shown = [f"{file}:{line}: {says}" for line, says in wrong[:MOST_ERRORS]]
        more = len(wrong) - len(shown)
        raise OptionInvalid("\n".join([*shown, f"and {more} more errors"] if more else shown))
    chosen, why = _engine(engine, body.get("engine"))
    source, target = (with_absolute_files(body[section], file) for section in ("source", "target"))
    kind = target.pop("type")
    return Description(
        file=file,
        name=body["name"],
        engine=chosen,
        state=body.get("state") or f"{STATE}/{body['name']}",
        tables=names(body.get("tables", "*")),
        keys={table: names(columns) for table, columns in body.get("keys", {}).items()},
        source={key: option(value) for key, value in source.items()},
        target=TargetDescription(
            kind, target.pop("mode", schema.default_mode(kind)), target.pop("evolve", "evolve"), target
        ),
        transforms=tuple(body.get("transforms", ())),
        spark=body.get("spark", {}),
        why_engine=why,
        hidden=frozenset(values.hidden),
        lines=text.lines,
    )


def _engine(wanted: Engine | None, written: Engine | None) -> tuple[Engine, str]:
    """Return the engine, and what has chosen it."""
    if wanted is not None:
        return wanted, "--engine" if written != wanted else "engine in the file"
    if written is not None:
        return written, "engine in the file"
    return ("spark", "pyspark is installed") if find_spec("pyspark") else ("embedded", "pyspark is not installed")


def _wrong_transforms(given: list[Mapping[str, Any]], text: YamlText, values: _Values) -> list[tuple[int, str]]:
    """Return line and sentence of the transforms that cannot be used."""
    found = []
    for number, each in enumerate(given):
        try:
            Transforms([each])
        except OptionInvalid as error:
            place: Place = ("transforms", number)
            said = str(error)
            if values.outside(place):
                said = f"{said.partition(':')[0]}: a value of a placeholder, which is not shown, cannot be used here"
            found.append((text.line(place), f"transforms[{number + 1}].{said}"))
    return found


def _doubled_columns(keys: Mapping[str, str | list[str]], text: YamlText, values: _Values) -> list[tuple[int, str]]:
    """Return line and sentence of the keys that have a column twice. Names of columns count in any case."""
    found = []
    for table, given in keys.items():
        place: Place = ("keys", table)
        seen: set[str] = set()
        for column in names(given):
            if column.lower() in seen:
                what = "a column" if values.outside(place) else printable(excerpt(column))
                found.append((text.line(place), f"{schema.shown(place)}: {what} is given twice"))
            seen.add(column.lower())
    return found


def names(value: str | list[str]) -> tuple[str, ...]:
    """Return one name, or a list of them, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


def option(value: Any) -> str:
    """Return a value as the text of an option."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


class _Values:
    """Fills in the placeholders of a file. problems: line and sentence of those that cannot be filled."""

    def __init__(self, text: YamlText, file: str) -> None:
        self.problems: list[tuple[int, str]] = []
        self._line = text.line
        self._directory = Path(file).parent
        self._outside: set[Place] = set()  # values that placeholders gave
        self.hidden: set[str] = set()  # their texts

    def secret(self, place: Place) -> bool:
        """Return whether a value must not be shown."""
        return place in self._outside or any(_SECRET.search(str(step)) for step in place)

    def outside(self, place: Place) -> bool:
        """Return whether placeholders gave a value, or a part of it."""
        return any(each[: len(place)] == place for each in self._outside)

    def filled(self, value: Any, place: Place) -> Any:
        """Return a value with the placeholders of its texts replaced."""
        if isinstance(value, dict):
            return {key: self.filled(each, (*place, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [self.filled(each, (*place, number)) for number, each in enumerate(value)]
        if not isinstance(value, str):
            return value
        if has_other_variable(value) and not any(step in _AS_IT_IS for step in place):
            wanted = "${env:NAME} or ${file:PATH}; a file can hold a text that has ${...} itself"
            self.problems.append((self._line(place), f"{schema.shown(place)}: expected {wanted}"))
            return value
        if not has_placeholder(value):
            return value
        self._outside.add(place)
        try:
            text = filled(value, self._directory, os.environ)
        except ValueError as error:
            self.problems.append((self._line(place), f"{schema.shown(place)}: expected {error}"))
            return value
        self.hidden.add(text)
        later = any(place[: len(each)] == each for each in _LATER)
        return with_absolute_paths(value, self._directory) if later else text
