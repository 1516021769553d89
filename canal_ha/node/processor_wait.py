"""ProcessorWait: for how long a thread has been ready to run without a processor, as Linux counts it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress


class ProcessorWait:
    """Call it on one thread. It returns seconds since the thread began; always 0.0 where the system does not tell."""

    def __init__(self) -> None:
        self._file: int | None = None

    def __call__(self) -> float:
        """Return the seconds. Takes some microseconds."""
        if self._file is None:
            self._file = -1
            with suppress(OSError):
                self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        if self._file < 0:
            return 0.0
        return int(os.pread(self._file, 64, 0).split()[1]) / 1e9

    def __del__(self) -> None:
        if self._file is not None and self._file >= 0:
            os.close(self._file)
