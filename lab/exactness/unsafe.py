"""A snapshot that does not wait until a SELECT sees what the stream has brought, to show that a judge notices it.

python -m lab.exactness.unsafe ...    the command `canal-ha ...` with such snapshots
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from canal_ha.cli import main as cli
from canal_ha.source.snapshot import source as source_module
from canal_ha.source.snapshot.junction import Junction, Opened, Watched
from canal_ha.source.snapshot.source import SnapshotSource

_EARLY_S = 0.03


@contextmanager
def unsafe_watermark() -> Iterator[None]:
    """Take away the wait for visibility in this process: read without it, on MariaDB with a view from before the
    window.
    """
    sources: list[SnapshotSource] = []
    made, opened = SnapshotSource.__init__, Junction.open

    def remember(self: SnapshotSource, *args: object, **options: object) -> None:
        made(self, *args, **options)  # type: ignore[arg-type]  # passed on as they come
        sources.append(self)

    def early(self: Junction, watched: Watched) -> Opened | None:
        if sources and sources[-1].server.mariadb:
            sources[-1]._session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            time.sleep(_EARLY_S)
        return opened(self, watched)

    with (
        patch.object(SnapshotSource, "__init__", remember),
        patch.object(Junction, "open", early),
        patch.object(source_module, "wait_visible", lambda *args: False),
    ):
        yield


if __name__ == "__main__":
    with unsafe_watermark():
        cli.main()
