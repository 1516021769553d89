"""Reads a YAML text with the line of each value. Pure.

The text may come from strangers' hands: tags, anchors, aliases and several documents are refused, and so are large and
deep texts. Keys are texts and occur once. A value without quotes is null, a boolean or a number only if it is spelled
as in JSON (`true`, `-1`, `1.5`, `null`, and `~`), so that `no`, `on` and `012` stay texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from canal_ha.errors import OptionInvalid
from canal_ha.model.excerpt import excerpt, printable

MOST_BYTES = 1 << 17
MOST_LEVELS = 16
Path = tuple[str | int, ...]
"""Keys and indexes that lead to a value"""

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][-+]?[0-9]{1,2})?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_CITED = re.compile(r"'[^'<]{2,}'")  # text of the file, in an error of the parser


class YamlText:
    """A parsed text.

    value: of dictionaries, lists, texts, numbers, booleans and None.
    lines: of each value, from 1; a key's line for the value of a key.
    """

    def __init__(self, raw: bytes, file: str) -> None:
        """Parse. file: name for messages. Raises OptionInvalid."""
        self.lines: dict[Path, int] = {}
        self._file = file
        if len(raw) > MOST_BYTES:
            raise OptionInvalid(f"{file} is larger than {MOST_BYTES} bytes")
        try:
            self._events: Iterator[yaml.Event] = yaml.parse(raw.decode(), Loader=yaml.SafeLoader)
            self.value = self._document()
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise OptionInvalid(f"{file}:{line}: expected UTF-8") from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            problem = _CITED.sub("'…'", error.problem or "it cannot be read")
            raise OptionInvalid(f"{file}:{line}: not valid YAML: {printable(problem)}") from None
        except yaml.YAMLError:
            raise OptionInvalid(f"{file}: not valid YAML: it has a character that no text file has") from None

    def line(self, path: Path) -> int:
        """Return the line of a value, or of the nearest one around it."""
        return nearest_line(self.lines, path)

    def _document(self) -> Any:
        value: Any = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._refusal(event, "expected one document: remove the line `---` and what follows")
            elif isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent, yaml.AliasEvent)):
                value = self._value(event, ())
        return value

    def _value(self, event: yaml.Event, path: Path) -> Any:
        self.lines.setdefault(path, _line(event))
        if isinstance(event, yaml.AliasEvent):
            raise self._refusal(event, "aliases (*name) are not supported: a text that begins with * needs quotes")
        assert isinstance(event, yaml.NodeEvent)
        if event.anchor is not None:
            raise self._refusal(event, "anchors (&name) are not supported: a text that begins with & needs quotes")
        if getattr(event, "tag", None) is not None:
            raise self._refusal(event, "tags (!name) are not supported: a text that begins with ! needs quotes")
        if isinstance(event, yaml.ScalarEvent):
            return scalar(event.value) if event.style is None else event.value
        if len(path) >= MOST_LEVELS:
            raise self._refusal(event, f"expected at most {MOST_LEVELS} levels")
        return self._list(path) if isinstance(event, yaml.SequenceStartEvent) else self._mapping(path)

    def _list(self, path: Path) -> list[Any]:
        values: list[Any] = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            values.append(self._value(event, (*path, len(values))))
        return values

    def _mapping(self, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None or event.anchor is not None:
                raise self._refusal(event, "expected a key, which is a plain text")
            key, place = event.value, (*path, event.value)
            if key in values:
                name = printable(excerpt(key))
                raise self._refusal(event, f"{name} is there twice, first in line {self.lines[place]}")
            self.lines[place] = _line(event)
            values[key] = self._value(next(self._events), place)
        return values

    def _refusal(self, event: yaml.Event, why: str) -> OptionInvalid:
        return OptionInvalid(f"{self._file}:{_line(event)}: {why}")


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None  # the loader gives every event one
    return event.start_mark.line + 1


def nearest_line(lines: Mapping[Path, int], path: Path) -> int:
    """Return the line of a value, or of the nearest one around it. lines: of values."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def scalar(text: str) -> Any:
    """Return the value of a text without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text
