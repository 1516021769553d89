"""canal-python 0.4 reads a destination and prints a line for each row, like tests/peers/lines.py. Runs in its own venv.

Arguments: port, destination, client id, filter, rows to read, user name, password. Prints `subscribed` first;
acknowledges each batch. The client sends a password as it is, not scrambled, so that a node refuses every password.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from typing import Any

from canal.client import Client
from canal.protocol import EntryProtocol_pb2 as pb


def lines(entry: Any) -> Iterator[str]:
    """Yield the lines of one entry."""
    change = pb.RowChange()
    change.ParseFromString(entry.storeValue)
    kind = pb.EventType.Name(change.eventType)
    for row in change.rowDatas:
        parts = [entry.header.schemaName, entry.header.tableName, kind]
        for side, columns in (("before", row.beforeColumns), ("after", row.afterColumns)):
            for column in columns:
                value = "NULL" if column.isNull else base64.b64encode(column.value.encode()).decode()
                parts.append(" ".join((side, column.name, str(int(column.updated)), value)))
        yield "\t".join(parts)


def main() -> None:
    """Read until enough rows have come."""
    port, destination, client_id, table_filter, wanted, user, password = sys.argv[1:]
    client = Client()
    client.connect(host="127.0.0.1", port=int(port))
    client.check_valid(user.encode(), password.encode())
    client.subscribe(client_id.encode(), destination.encode(), table_filter.encode())
    print("subscribed", flush=True)
    left = int(wanted)
    while left > 0:
        message = client.get_without_ack(100, timeout=200, unit=2)
        for entry in message["entries"]:
            if entry.entryType == pb.EntryType.ROWDATA:
                for line in lines(entry):
                    print(line)
                    left -= 1
        sys.stdout.flush()
        client.ack(message["id"])
    client.disconnect()


main()
