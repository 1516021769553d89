"""A process that commits into MySQL, and dies between statements that change columns; for multiprocessing."""

from __future__ import annotations

import os
import signal

from canal_ha.pipeline.description import Description
from canal_ha.pipeline.mysql_copies import MySQLWriter
from canal_ha.pipeline.targets import open_target
from tests.pipeline.given import portion


def dying(description: Description, entries: list[bytes], statements: int) -> None:
    """Commit the second portion into one copy, and die by SIGKILL behind this number of statements."""
    change = MySQLWriter.change_columns

    def change_some(self: MySQLWriter) -> None:
        [copy] = self._copies.values()
        copy.ddl = copy.ddl[:statements]
        change(self)
        os.kill(os.getpid(), signal.SIGKILL)

    MySQLWriter.change_columns = change_some  # type: ignore[method-assign]
    open_target(description).commit(portion(2, 100, entries))
