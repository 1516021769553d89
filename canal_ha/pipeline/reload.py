"""A pipeline's file that changes while the pipeline runs: what can be taken over, and what became of the last change.

Only what leaves the target's rows and the place in the binlog alone is taken over. Everything else needs a person, so
the pipeline goes on with the file that it has, and a note in the directory of `state` says why.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from canal_ha import private_files
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.schema import shown
from canal_ha.pipeline.yaml_text import Path as Place

_NOTE = "reload.json"
_SOURCE = frozenset(
    {"user", "password", "passwordfile", "fetchsize", "segmentbytes", "maxrowspertrigger", "failondataloss"}
    | {"availablenowquietms", "sessiontimeoutms"}
)
_TARGET = frozenset(
    {"user", "passwordfile", "secretfile", "tokenfile", "batchrows", "batchbytes", "timeouts", "retryfors", "timeout"}
    | {"maxmessagebytes", "compression", "headers", "compactevery"}
)
_SECRET = re.compile("(?i)secret|password|passwd|token|access.?key")
_INSIDE = frozenset({"storage", "properties", "catalog", "schemaRegistry"})  # sections of which only secrets change
_ANEW = "give it a new name, clientId and empty target to begin anew"
_RESTART = "stop the pipeline and start it again"


@dataclass(frozen=True, slots=True)
class UnsafeEdit:
    """A change that a running pipeline does not take over. place: its key; why: and what to do."""

    place: Place
    why: str

    @property
    def named(self) -> str:
        """The key, as errors of the file name it."""
        return shown(self.place)


def refusals(old: Description, new: Description) -> Iterator[UnsafeEdit]:
    """Yield the changes between two descriptions that a running pipeline does not take over. Pure."""
    for key in ("name", "engine", "state", "tables", "keys"):
        if getattr(old, key) != getattr(new, key):
            yield UnsafeEdit((key,), _ANEW if key == "name" else _RESTART)
    for key in sorted(_changed(old.source, new.source)):
        if key.lower() not in _SOURCE:
            yield UnsafeEdit(("source", key), _ANEW if key in ("destination", "clientId") else _RESTART)
    if old.target.kind != new.target.kind:
        yield UnsafeEdit(("target", "type"), _ANEW)
        return
    if old.target.mode != new.target.mode:
        yield UnsafeEdit(("target", "mode"), _ANEW)
    for key in sorted(_changed(old.target.options, new.target.options)):
        before, after = old.target.options.get(key), new.target.options.get(key)
        if key in _INSIDE and isinstance(before, Mapping) and isinstance(after, Mapping):
            for name in sorted(_changed(before, after)):
                if not _SECRET.search(name):
                    yield UnsafeEdit(("target", key, name), _RESTART)
        elif key.lower() not in _TARGET and not _SECRET.search(key):
            yield UnsafeEdit(("target", key), _ANEW)
    yield from _transforms(old, new)


def _transforms(old: Description, new: Description) -> Iterator[UnsafeEdit]:
    before, after = list(old.transforms), list(new.transforms)
    if before == after:
        return
    at = next((at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), len(before))
    place: Place = ("transforms", at) if at < len(after) else ("transforms",)
    if after[: len(before)] != before:
        yield UnsafeEdit(place, f"only additions at the end are taken over; {_RESTART}")
    elif new.target.mode != "events" and new.target.kind not in ("parquet", "delta"):
        yield UnsafeEdit(place, f"the target's tables have columns already; {_RESTART}")
    elif new.target.mode in ("mirror", "scd2"):
        yield UnsafeEdit(place, f"the target has rows from before; {_ANEW}")
    else:
        for at, each in enumerate(after[len(before) :], len(before)):
            if any(kind == "route" or (kind == "rename" and "to" in given) for kind, given in each.items()):
                yield UnsafeEdit(
                    ("transforms", at),
                    "a table gets another name, and what the target has of an interrupted commit would come twice;"
                    f" {_RESTART} while the target answers",
                )


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


class FileWatch:
    """Notices that a file was changed, once it rests. path: of the file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known = self._seen = self._look()

    def changed(self) -> bool:
        """Return whether the file has changed since the last True, or the start, but not since the last call."""
        now, before = self._look(), self._seen
        self._seen = now
        if now == self._known or now != before:
            return False
        self._known = now
        return True

    def _look(self) -> tuple[int, ...]:
        try:
            found = os.stat(self._path)
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns


def note_of(description: Description, problem: str) -> bytes:
    """Return the note of what became of the file as it is now. problem: why it was not taken over; "" if it was."""
    return json.dumps({"file": _digest(description.file), "problem": problem}).encode()


def keep(state: str, note: bytes) -> None:
    """Store a note for `noted`. state: directory of the pipeline. note: of `note_of`. Raises OSError."""
    private_files.replace(Path(state) / _NOTE, note)


def noted(description: Description) -> str:
    """Return why a running pipeline did not take the file over as it is now; "" if it did, or if none tried."""
    try:
        body: Any = json.loads((Path(description.state) / _NOTE).read_text())
        return str(body["problem"]) if body["file"] == _digest(description.file) else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _digest(file: str) -> str:
    try:
        return sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""
