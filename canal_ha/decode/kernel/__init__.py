"""The hot path: dump bytes -> wire-ready entries, and entries -> columns and rows for clients.

One source runs interpreted, or compiled beside itself. CANAL_HA_KERNEL chooses before the first import: `auto` uses the
compiled modules if they are built, `require` fails without them, `off` ignores them. BUILD names the one that runs.
Importing raises only ImportError; the modules raise primitives.Broken for malformed bytes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

DECODER = ("cells", "numbers", "temporal", "documents", "rows", "protection", "gtid", "grouping", "stream", "images")
READER = (
    *("buffers", "fields", "layouts", "entries", "columns", "shapes"),
    *("changes", "queue_rows", "envelopes", "transactions"),
)
HOT = DECODER + READER  # the compiled modules; primitives are inlined
_HERE = Path(__file__).parent


def _compiled(name: str) -> bool:
    return any((_HERE / f"{name}{suffix}").exists() for suffix in EXTENSION_SUFFIXES)


class _SourceOnly:
    """An import finder that ignores the extensions of this package."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, module = name.rpartition(".")
        if package != __name__ or module not in HOT:
            return None
        file = str(_HERE / f"{module}.py")
        return spec_from_file_location(name, file, loader=SourceFileLoader(name, file))


def _choose(wanted: str) -> str:
    if wanted not in ("auto", "require", "off"):
        raise ImportError(f"CANAL_HA_KERNEL = {wanted!r}: expected auto, require or off")
    missing = [name for name in HOT if not _compiled(name)]
    if wanted == "require" and missing:
        raise ImportError(f"CANAL_HA_KERNEL = require, but these modules are not compiled: {', '.join(missing)}")
    if wanted == "off" or missing:  # an incomplete build does not count
        sys.meta_path.insert(0, _SourceOnly)
        return "interpreted"
    return "compiled"


BUILD = _choose(os.environ.get("CANAL_HA_KERNEL", "auto"))
