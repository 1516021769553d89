"""A debug bundle: documents without secrets in one tar.gz of bounded size."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from canal_ha.errors import LocalProtocolError
from canal_ha.model.excerpt import json_text

DOCUMENT_BYTES = 4 << 20
ALL_BYTES = 48 << 20  # before compression
SHORTEST_SECRET = 6  # characters; shorter ones, as the default password, are parts of ordinary words
HIDDEN = b"***"


@dataclass(frozen=True, slots=True)
class BundlePart:
    """One file of a bundle. left_out: bytes that were cut from its beginning or its end."""

    name: str
    size_bytes: int
    left_out: int = 0


@dataclass(slots=True)
class Bundle:
    """The documents, in memory.

    parts: what it has.
    problems: what it does not have, as `name: why`.
    """

    parts: list[BundlePart] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _files: dict[str, bytes] = field(default_factory=dict)
    _secrets: set[bytes] = field(default_factory=set)

    def hide(self, secrets: Iterable[str]) -> None:
        """Replace secrets by *** in all documents, also in those of before, as they stand in any text."""
        for secret in secrets:
            if len(secret) >= SHORTEST_SECRET:
                self._secrets |= {form.encode() for form in _forms(secret)}

    def add(self, name: str, text: str | bytes, *, tail: bool = False) -> None:
        """Add a document. What is too long is cut at its end, or with `tail` at its beginning.

        name: of its file in the bundle.
        """
        data = self._clean(text.encode(errors="backslashreplace") if isinstance(text, str) else text)  # before a cut
        room = min(DOCUMENT_BYTES, ALL_BYTES - sum(map(len, self._files.values())))
        if room <= 0:
            self.problem(name, f"the bundle has {ALL_BYTES >> 20} MiB already")
            return
        kept = data[-room:] if tail else data[:room]
        self.parts.append(BundlePart(name, len(kept), len(data) - len(kept)))
        self._files[name] = kept

    def add_json(self, name: str, document: object) -> None:
        """Add a document as JSON."""
        self.add(name, json_text(document, 1) + "\n")

    def problem(self, name: str, why: object) -> None:
        """Say why a document is missing."""
        self.problems.append(f"{name}: {why}")

    def redacted(self, text: str) -> str:
        """Return a text without the secrets."""
        return self._clean(text.encode(errors="backslashreplace")).decode(errors="replace")

    def write(self, path: Path) -> int:
        """Write the file for the user of the process alone; return its size in bytes. Raises LocalProtocolError."""
        top = path.name.partition(".")[0]
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise LocalProtocolError(
                f"{path} cannot be made ({error.strerror}): choose another file with --out"
            ) from error
        listing = {
            "parts": [[each.name, each.size_bytes, each.left_out] for each in self.parts],
            "missing": self.problems,
        }
        files = {"listing.json": json.dumps(listing, indent=1).encode(), **self._files}
        with os.fdopen(descriptor, "wb") as out:
            with tarfile.open(fileobj=out, mode="w:gz") as archive:
                for name, data in files.items():
                    clean = self._clean(data)
                    entry = tarfile.TarInfo(f"{top}/{name}")
                    entry.size, entry.mode, entry.mtime = len(clean), 0o600, int(time.time())
                    archive.addfile(entry, io.BytesIO(clean))
            return out.tell()

    def _clean(self, data: bytes) -> bytes:
        for secret in sorted(self._secrets, key=len, reverse=True):  # one may be a part of another
            data = data.replace(secret, HIDDEN)
        return data


def _forms(secret: str) -> set[str]:
    """Return a secret as it stands in plain text, JSON, escaped log lines and URLs."""
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        secret.encode("unicode_escape").decode(),
        quote(secret),
        quote(secret, safe=""),
    }
