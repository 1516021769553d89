"""Files that a pipeline's file names, of secrets and certificates: a relative path starts at its directory. Pure.

Settings that belong to other libraries (`storage`, `catalog`, `properties`, Spark's own) stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAMED = frozenset(
    {"passwordfile", "secretfile", "tokenfile", "zkauthfile", "zksaslfile", "zktlsca", "zktlscert", "zktlskey"}
    | {"tlsca", "tlscert", "tlskey", "sslca", "sslcert", "sslkey", "ca"}
)
"""Keys whose values are paths, in lower case."""

_INSIDE = "schemaRegistry"  # a section with such keys


def with_absolute_files(section: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Return the keys of a section, with absolute paths of the files that they name. file: the pipeline's."""
    return {key: _absolute(key, value, file) for key, value in section.items()}


def _absolute(key: str, value: Any, file: str) -> Any:
    if key == _INSIDE and isinstance(value, Mapping):
        return with_absolute_files(value, file)
    if key.lower() in NAMED and isinstance(value, str) and value:
        return str((Path(file).parent / value).absolute())
    return value
