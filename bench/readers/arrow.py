"""A client that turns entries into Arrow record batches and acknowledges. Arguments: bench.readers.session."""

from __future__ import annotations

import canal_ha.client.arrow  # noqa: F401  # loading pyarrow is not counted
from bench.readers import session
from canal_ha.client.connector import SimpleConnector


def take(client: SimpleConnector, batch_size: int) -> tuple[int, int]:
    """Build the record batches of a batch."""
    message = client.get_arrow(batch_size, session.WAIT_MS)
    return message.id, sum(batch.rows.num_rows for batch in message.batches)


if __name__ == "__main__":
    session.main(take)
