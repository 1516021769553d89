"""A client that turns entries into Python rows, uses every value, and acknowledges.

Arguments: bench.readers.session.
"""

from __future__ import annotations

from bench.readers import session
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import rows_of


def take(client: SimpleConnector, batch_size: int) -> tuple[int, int]:
    """Count NULLs in a batch, which uses every value."""
    message = client.get_without_ack(batch_size, session.WAIT_MS)
    rows = nulls = 0
    for row in rows_of(message):
        for side in (row.before, row.after):
            if side is not None:
                nulls += sum(value is None for value in side.values())
        rows += 1
    return message.id, rows


if __name__ == "__main__":
    session.main(take)
