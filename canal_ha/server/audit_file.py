"""AuditFile: appends the lines of the audit in a thread of its own, so that a slow or full disk stops nobody.

The reactor puts lines into a bounded queue. While the file cannot be written, its thread tries the same line again and
the queue fills; lines beyond it are lost and counted. While the file cannot be rotated, it grows.
"""

from __future__ import annotations

import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from queue import Full, Queue

from canal_ha import logs, steady_time

LOG = logs.get(__name__)
LINES_WAITING = 10_000
AGAIN_S = 1.0
CLOSE_WITHIN_S = 2.0


class AuditFile:
    """See the module. The file and its directory are for the node's user alone; it rotates as the logs do."""

    def __init__(self, path: Path, rotate_bytes: int = logs.ROTATE_BYTES) -> None:
        """path: of the file. rotate_bytes: size beyond which the next line begins a new file."""
        self.lost = 0  # lines
        self.problem = ""  # why the file cannot be written; "" if it can
        self.unrotated = ""  # why the file cannot be rotated; "" if it can
        self.path = path
        self._rotate_at = 0.0  # steady seconds; not before
        self._rotate_bytes = rotate_bytes
        self._lines: Queue[bytes | None] = Queue(LINES_WAITING)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._descriptor = -1
        self._cut = False  # the file ends in the middle of a line

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Take a line, with its end. Any thread; never blocks."""
        try:
            self._lines.put_nowait(line)
        except Full:
            self.lost += 1

    def close(self) -> None:
        """Write what waits, for at most CLOSE_WITHIN_S, and tell the log how many lines are lost then."""
        left = self._lines.unfinished_tasks
        self._closing.set()
        with suppress(Full):
            self._lines.put_nowait(None)
        if self._thread.is_alive():
            self._thread.join(CLOSE_WITHIN_S)
        left = min(left, self._lines.unfinished_tasks)  # which may count the None
        if left:
            LOG.error("audit.not_written", file=str(self.path), lines=left, error=self.problem or "the disk is slow")

    # ---- in the thread

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            closing = False
            while not self._written(line):
                if closing:
                    return
                closing = self._closing.wait(AGAIN_S)  # the last attempt follows: the disk may have room by now
            self._lines.task_done()
        self._lines.task_done()
        if self._descriptor >= 0:
            try:
                self._close()
            except OSError as error:
                self._failed(error)

    def _written(self, line: bytes) -> bool:
        try:
            self._append(line)
        except OSError as error:
            self._failed(error)
            return False
        if self.problem:
            self.problem = ""
            LOG.info("audit.written_again", file=str(self.path), lost=self.lost)
        return True

    def _failed(self, error: OSError) -> None:
        problem = f"{self.path}: {error.strerror}"
        if problem != self.problem:
            LOG.error("audit.write_failed", file=str(self.path), error=str(error.strerror))
        self.problem = problem

    def _append(self, line: bytes) -> None:
        if self._descriptor >= 0 and not self._is_in_place():
            self._close()
        if self._descriptor >= 0 and os.fstat(self._descriptor).st_size + len(line) > self._rotate_bytes:
            self._rotate()
        if self._descriptor < 0:
            self._open()
        data = b"\n" + line if self._cut else line
        written = os.write(self._descriptor, data)
        self._cut = written < len(data)
        if self._cut:
            raise OSError(0, "the disk took a part of a line")

    def _is_in_place(self) -> bool:
        """Return whether the file that is open still has its name: others may remove it or rotate it."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISREG(mode):  # never a device or a pipe, which others share
                if stat.S_IMODE(mode) != 0o600:  # nobody may set the mode of a file that takes appends alone
                    _make_private(descriptor, stat.S_IMODE(mode))
                self._cut = _last_line_is_cut(self.path)  # an earlier process may have stopped while the disk was full
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1  # it is closed even if that fails
        os.close(descriptor)

    def _rotate(self) -> None:
        """Begin a new file; if that fails, go on with the old one and try again after logs.ROTATE_AGAIN_S."""
        if steady_time.seconds() < self._rotate_at:
            return
        try:
            logs.rotate(self.path)
        except OSError as error:
            self._rotate_at = steady_time.seconds() + logs.ROTATE_AGAIN_S
            if not self.unrotated:
                LOG.error("audit.not_rotated", file=str(self.path), error=str(error))
            self.unrotated = str(error)
            return
        self.unrotated = ""
        self._close()


def _make_private(descriptor: int, mode: int) -> None:
    try:
        os.fchmod(descriptor, 0o600)
    except OSError as error:
        raise OSError(error.errno, f"its mode {mode:04o} cannot be set to 0600: {error.strerror}") from error


def _last_line_is_cut(path: Path) -> bool:
    """Return whether a file has content and does not end with a line break."""
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
