"""FileBackend: cursors in canal's files, meta.dat and parse.dat of {data_dir}/{destination}.

See docs/protocol.md#cursor-files.

A file is replaced as a whole: write a new file, fsync, rename, fsync the directory. A crash leaves the old text or the
new one. parse.dat counts only while no client has a cursor, so the rename that puts the first cursor into meta.dat
already voids it; removing parse.dat afterwards only tidies up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from canal_ha.errors import MetaUnreadable, MetaWriteFailed
from canal_ha.meta.repository import Change, Snapshot, apply
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition, read_json
from canal_ha.private_files import make_directory, opener

T = TypeVar("T")


class RunBlocking(Protocol):
    """Runs a blocking call in another thread: Twisted's deferToThread."""

    def __call__(self, call: Callable[[], T], /) -> Awaitable[T]:
        """Return what `call` returns, or raise what it raises."""
        ...


class FileBackend:
    """The cursor files of one destination. data_dir: contains a directory for each destination."""

    def __init__(self, data_dir: Path, destination: str, run_blocking: RunBlocking) -> None:
        self._destination = destination
        self._meta_file = data_dir / destination / "meta.dat"
        self._start_file = data_dir / destination / "parse.dat"
        self._run_blocking = run_blocking
        self._written: Snapshot | None = None  # what was read or written last; None until the files are read
        self._certain = False  # the files hold exactly `_written`; after a failed write they may hold more

    async def load(self) -> Snapshot:
        """See MetaBackend. Files that do not exist are an empty snapshot."""
        self._written = await self._run_blocking(self._read)
        self._certain = True
        return self._written

    async def write(self, changes: tuple[Change, ...]) -> None:
        """See MetaBackend. Raises MetaUnreadable if the files were never read: writing would lose their contents."""
        before = self._written
        if before is None:
            raise MetaUnreadable(f"{self._meta_file}: not written, because it was never read; load it first")
        after = apply(before, changes)
        there, self._certain = before if self._certain else None, False
        await self._run_blocking(lambda: self._store(there, after))
        self._written, self._certain = after, True

    async def holder(self, client_id: int) -> str:
        """Return "": only clients in a cluster have locks."""
        return ""

    # ---- in another thread

    def _read(self) -> Snapshot:
        clients: dict[int, ClientIdentity] = {}
        cursors: dict[int, LogPosition] = {}
        servers: tuple[str, ...] = ()
        text = _read_text(self._meta_file)
        if text is not None:
            with _understanding(self._meta_file):
                clients, cursors = self._parse(text)
                servers = tuple(map(str, read_json(text).get("source", ())))
        if cursors:
            with _writing(self._start_file):
                self._start_file.unlink(missing_ok=True)
            return Snapshot(clients, cursors, None, servers)
        text = _read_text(self._start_file)
        if text is None:
            return Snapshot(clients, cursors, None, servers)
        with _understanding(self._start_file):
            return Snapshot(clients, cursors, LogPosition.from_json(text), servers)

    def _parse(self, text: str) -> tuple[dict[int, ClientIdentity], dict[int, LogPosition]]:
        clients: dict[int, ClientIdentity] = {}
        cursors: dict[int, LogPosition] = {}
        for data in read_json(text)["clientDatas"]:
            identity = data["clientIdentity"]
            client_id = int(identity["clientId"])
            clients[client_id] = ClientIdentity(self._destination, client_id, str(identity.get("filter") or ""))
            if data.get("cursor") is not None:
                cursors[client_id] = LogPosition.from_dict(data["cursor"])
        return clients, cursors

    def _store(self, before: Snapshot | None, after: Snapshot) -> None:
        """Write the files whose text differs. before: what they hold; None if nobody knows: write all of them."""
        if after.start is not None and (before is None or after.start != before.start):
            with _writing(self._start_file):
                _replace(self._start_file, after.start.to_json(with_type=False))
        text = meta_text(self._destination, after)  # equal cursors can differ in what is kept beside them
        if before is None or text != meta_text(self._destination, before):
            with _writing(self._meta_file):
                _replace(self._meta_file, text)
        if after.start is None and (before is None or before.start is not None):
            with _writing(self._start_file):
                self._start_file.unlink(missing_ok=True)


def meta_text(destination: str, snapshot: Snapshot) -> str:
    """Return canal's exact text of meta.dat: no blanks, keys in alphabetical order, no `@type`.

    The servers that were switched to are in the key "source", which canal lacks and ignores.
    """
    datas: list[dict[str, Any]] = []
    for client_id in sorted(snapshot.clients):
        identity = snapshot.clients[client_id]
        data: dict[str, Any] = {
            "clientIdentity": {"clientId": client_id, "destination": destination, "filter": identity.filter}
        }
        if client_id in snapshot.cursors:
            data["cursor"] = snapshot.cursors[client_id].to_dict(with_type=False)
        datas.append(data)
    body: dict[str, Any] = {"clientDatas": datas, "destination": destination}
    if snapshot.servers:
        body["source"] = list(snapshot.servers)
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


def _read_text(file: Path) -> str | None:
    with _understanding(file):
        try:
            with open(file, encoding="utf-8", opener=opener) as found:
                return found.read()
        except FileNotFoundError:
            return None


def _replace(file: Path, text: str) -> None:
    make_directory(file.parent)
    beside = file.with_name(file.name + ".new")
    try:
        with open(beside, "wb", opener=opener) as out:
            if os.geteuid() == 0:  # `canal-ha cursor set` by root leaves a file that the node can read
                owner = (file if file.exists() else file.parent).stat()
                os.fchown(out.fileno(), owner.st_uid, owner.st_gid)
            out.write(text.encode())
            out.flush()
            os.fsync(out.fileno())
        beside.replace(file)
    except OSError:
        with suppress(OSError):  # the first error is the one to report
            beside.unlink(missing_ok=True)
        raise
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def _understanding(file: Path) -> Iterator[None]:
    """Turn every error of reading or parsing the file into MetaUnreadable."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetaUnreadable(
            f"{file}: cannot be read as canal's cursors ({type(error).__name__}: {error});"
            " repair the file, or move it away to continue without its cursors"
        ) from error


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    """Turn an operating system error into MetaWriteFailed."""
    try:
        yield
    except OSError as error:
        raise MetaWriteFailed(f"{file}: {error.strerror or error}; will be tried again") from error
