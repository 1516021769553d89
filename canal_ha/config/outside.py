"""Reads `${file:PATH}` and `${env:NAME}`: text that a configuration does not hold itself, such as a password.

${file:PATH}    the text of a file without the newline at its end; a relative path starts at the configuration file
${env:NAME}     a variable of the process environment; ${env:NAME:default} if it may be missing or empty

A pipe or a device is an error: it may have no end, and cannot be read again.
An empty text of a secret is an error: somebody forgot to write it, and "" would mean no protection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from canal_ha.config.small_files import NotRegular, read_small

MOST_BYTES = 1 << 16  # of a file in a placeholder
KINDS = frozenset({"file", "env"})
_PLACEHOLDER = re.compile(r"\$\{(file|env):([^{}]*)\}")
_VARIABLE = re.compile(r"\$\{[^{}]*\}")


def has_placeholder(text: str) -> bool:
    """Return whether a text has a placeholder of a file or of the environment."""
    return _PLACEHOLDER.search(text) is not None


def has_other_variable(text: str) -> bool:
    """Return whether a text has a `${...}` that is no placeholder, so that it would stay as it is."""
    return _VARIABLE.search(_PLACEHOLDER.sub("", text)) is not None


def named_files(text: str, directory: Path) -> tuple[Path, ...]:
    """Return the files that the placeholders of a text name. directory: where relative paths start."""
    return tuple(directory / found[2].strip() for found in _PLACEHOLDER.finditer(text) if found[1] == "file")


def filled(text: str, directory: Path, environ: Mapping[str, str]) -> str:
    """Return a text with these placeholders replaced; everything else stays as it is.

    text: of a configuration file or an option.
    directory: where relative paths start.
    environ: the process environment.
    Raises ValueError with a file or variable that cannot be read.
    """
    return _PLACEHOLDER.sub(lambda found: outside(found[1], found[2].strip(), directory, environ), text)


def with_absolute_paths(text: str, directory: Path) -> str:
    """Return a text whose placeholders name the same files from any directory, for another process."""
    return _PLACEHOLDER.sub(
        lambda found: f"${{file:{(directory / found[2].strip()).absolute()}}}" if found[1] == "file" else found[0], text
    )


def outside(kind: str, name: str, directory: Path, environ: Mapping[str, str], *, may_be_empty: bool = False) -> str:
    """Return the text of one placeholder.

    kind: one of KINDS.
    name: what is behind the colon.
    directory: where relative paths start.
    environ: the process environment.
    may_be_empty: nothing is protected by the text; an empty one is no error.
    Raises ValueError, whose text says what was expected.
    """
    if not name:
        raise ValueError(f"${{{kind}:NAME}}: the name is missing")
    if kind == "env":
        variable, colon, default = name.partition(":")
        value = environ.get(variable, "")
        if value.strip() or colon:
            return value if value.strip() else default
        if may_be_empty and variable in environ:
            return ""
        state = "is empty" if variable in environ else "is not set"
        raise ValueError(f"a variable of the environment: {variable} {state}")
    path = directory / name
    try:
        text = read_small(path, MOST_BYTES).decode()
    except NotRegular:
        raise ValueError(
            f"a regular file, which can be read again: {path} is a pipe or a device. Write the text into a file, or"
            " into a variable for ${env:NAME}"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"a readable file: {path}: {reason}") from error
    if not text.strip() and not may_be_empty:
        raise ValueError(f"a file with a text: {path}: it is empty")
    return text.removesuffix("\n").removesuffix("\r")
