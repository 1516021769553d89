"""A client that counts the rows of entries and acknowledges; it reads no column.

Arguments: bench.readers.session.
"""

from __future__ import annotations

from bench.readers import session
from canal_ha.client.connector import SimpleConnector
from canal_ha.decode.kernel import codes


def take(client: SimpleConnector, batch_size: int) -> tuple[int, int]:
    """Count the rows in a batch by its headers and row changes."""
    message = client.get_without_ack(batch_size, session.WAIT_MS)
    entry = message.walk()
    rows = 0
    while entry.next():
        if entry.kind == codes.ROWDATA:
            rows += entry.change()
    return message.id, rows


if __name__ == "__main__":
    session.main(take)
