"""Row changes as mysql-replication decodes them: the independent reference of the workload tests."""

from __future__ import annotations

from collections.abc import Iterator

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from lab import SqlServer
from lab.ports import LOOPBACK
from tests.node.workload import Change, plain


def changes(server: SqlServer, database: str, start: tuple[str, int], *, server_id: int = 900_001) -> Iterator[Change]:
    """Yield every row change of one schema from `start` to the end of the binlog, in order."""
    reader = BinLogStreamReader(
        connection_settings={"host": LOOPBACK, "port": server.port, "user": "admin", "password": "admin"},
        server_id=server_id,
        log_file=start[0],
        log_pos=start[1],
        resume_stream=True,
        only_schemas=[database],
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    try:
        for event in reader:
            for row in event.rows:
                if isinstance(event, UpdateRowsEvent):
                    before, after = plain(event.table, row["before_values"]), plain(event.table, row["after_values"])
                    yield event.table, "UPDATE", before, after
                elif isinstance(event, WriteRowsEvent):
                    yield event.table, "INSERT", None, plain(event.table, row["values"])
                else:
                    yield event.table, "DELETE", plain(event.table, row["values"]), None
    finally:
        reader.close()
