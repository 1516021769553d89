"""The text of a TOML file with tables of one kind, as [accounts.NAME], and the line at which an error is. Pure."""

from __future__ import annotations

import re
import tomllib
from contextlib import suppress
from typing import Any

from canal_ha.errors import FileUnusable

_TOML_LINE = re.compile(r"at line (\d+)")


def document_of(text: str, file: str) -> dict[str, Any]:
    """Parse a TOML file. Raises FileUnusable with file, line and reason.

    text: the file's content.
    file: its path, for errors.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, arrays in arrays
        found = _TOML_LINE.search(str(error))
        end = text.rstrip().count("\n") + 1 if isinstance(error, tomllib.TOMLDecodeError) else 0
        line = int(found[1]) if found else end
        raise FileUnusable(file, f"is not TOML: {error}", line) from error


def line_of(text: str, key: str, section: str = "", table: str | None = None) -> int:
    """Return the number of the line that defines a key, or else of its table's head; 0 if neither is found.

    text: the file's content.
    key: its name; "" for the table itself.
    section, table: of the table [section.table]; without them a key outside all tables, or a section.
    """
    inside, of_table = table is None, 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("["):
            if table is None and key in _head(line):
                return number
            inside = table is not None and _heads(line, section, table)
            of_table = number if inside else of_table
        elif inside and key and re.match(rf"""\s*["']?{re.escape(key)}["']?\s*=""", line):
            return number
    return of_table


def _heads(line: str, section: str, table: str) -> bool:
    """Return whether a line is the head of the table."""
    tables = _head(line).get(section)
    return isinstance(tables, dict) and table in tables


def _head(line: str) -> dict[str, Any]:
    """Return what a line stands for that begins with a bracket; nothing if it is no head of a table."""
    with suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(line)
    return {}
