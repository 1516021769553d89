"""Random changes of a table, and the history that they make, computed one change after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

from tests.spark import entries as made

NOTE: made.ColumnSpec = ("note", "varchar(20)", 12, False)
KEYS = 4


@dataclass(slots=True)
class History:
    """All versions of a table `t`, as a naive copy keeps them; entries: of the changes so far, by offset."""

    schema: str = "s"
    versions: list[dict[str, Any]] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list)
    has_note: bool = False
    had_note: bool = False

    def grow(self, random: Random, changes: int) -> None:
        """Make changes; several have one time."""
        for _ in range(changes):
            offset = len(self.entries) + 1
            more: dict[str, Any] = {"time": offset // 4 * 1000, "schema": self.schema}
            chance, key = random.random(), random.randint(1, KEYS)
            if chance < 0.04:
                self.entries.append(made.ddl(offset, "TRUNCATE TABLE t", "TRUNCATE", **more))
                self._end(None, offset)
            elif chance < 0.1:
                self._alter(offset, more)
            elif chance < 0.7:
                self._change(random, offset, key, more)
            elif chance < 0.8:
                moved = random.choice([each for each in range(1, KEYS + 1) if each != key])
                old, new = self._image(key, "old"), self._image(moved, f"v{offset}")
                self.entries.append(made.rows(offset, "UPDATE", [(old, new)], self._columns, **more))
                self._end(key, offset)
                self._end(moved, offset)
                self._begin(new, offset)
            else:
                old = self._image(key, "old")
                self.entries.append(made.rows(offset, "DELETE", [(old, None)], self._columns, **more))
                self._end(key, offset)

    def shown(self) -> list[tuple[Any, ...]]:
        """Return the versions, sorted."""
        return shown(self.versions)

    @property
    def _columns(self) -> Sequence[made.ColumnSpec]:
        return (made.ID, made.NAME, NOTE) if self.has_note else (made.ID, made.NAME)

    def _image(self, key: int, name: str) -> dict[str, str | None]:
        return {"id": str(key), "name": name, **({"note": name} if self.has_note else {})}

    def _alter(self, offset: int, more: dict[str, Any]) -> None:
        if self.has_note:
            sql = "ALTER TABLE t DROP note"
        elif self.had_note:
            sql = "ALTER TABLE t ADD note VARCHAR(20)"
        else:
            sql = "ALTER TABLE t ADD note VARCHAR(20) DEFAULT 'n'"
            for each in self.versions:
                each["note"] = "n"
        self.has_note, self.had_note = not self.has_note, True
        self.entries.append(made.ddl(offset, sql, **more))

    def _change(self, random: Random, offset: int, key: int, more: dict[str, Any]) -> None:
        image = self._image(key, f"v{offset}")
        kind = random.choice(["INSERT", "UPDATE", "read"])
        before = self._image(key, "old") if kind == "UPDATE" else None
        extra = {"snapshot": "s1"} if kind == "read" else {}
        kind = "INSERT" if kind == "read" else kind
        self.entries.append(made.rows(offset, kind, [(before, image)], self._columns, **more, **extra))
        current = next((each for each in self.versions if each["id"] == key and each["is_current"]), None)
        if extra and current is not None:
            current.update({**image, "id": key})
            return
        self._end(key, offset)
        self._begin(image, offset)

    def _begin(self, image: dict[str, str | None], offset: int) -> None:
        own = {**image, "id": int(image["id"] or 0), "valid_from": _moment(offset), "valid_to": None}
        self.versions.append({**own, "is_current": True, "valid_position": f"bin.000001:{offset:012}.0000.000000"})

    def _end(self, key: int | None, offset: int) -> None:
        for each in self.versions:
            if each["is_current"] and key in (None, each["id"]):
                each.update(valid_to=_moment(offset), is_current=False)


def _moment(offset: int) -> datetime:
    return datetime.fromtimestamp(offset // 4, UTC)


def shown(versions: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return versions as sorted tuples, whatever types a database has for times and booleans."""
    found = [
        (
            each["id"],
            each["valid_position"],
            each["name"],
            each.get("note"),
            each["valid_from"].replace(tzinfo=UTC),
            each["valid_to"] and each["valid_to"].replace(tzinfo=UTC),
            bool(each["is_current"]),
        )
        for each in versions
    ]
    return sorted(found, key=str)
