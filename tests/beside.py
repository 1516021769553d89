"""Work on a thread beside a block of a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `work` on a thread, and wait for its end at the end of the block.

    work: gets an event that is set when the block ends.
    """
    stopping = threading.Event()
    thread = threading.Thread(target=work, args=(stopping,))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
