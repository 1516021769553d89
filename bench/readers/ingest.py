"""Measures ingest: a source's dump through kernel and sink into a ring, in one process without a client.

Stored entries are acknowledged in batches of BATCH_BYTES.

python -m bench.readers.ingest PORT JOURNAL OFFSET ROWS FILTER [SSLMODE]

SSLMODE is DISABLED unless it is given, because the peers read without TLS.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time

from canal_ha.config.model import BatchMode, InstanceConfig, SourceConfig, TlsConfig
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment, Source
from canal_ha.sink import Sink
from canal_ha.source.connection.identity import replica
from canal_ha.source.connection.tables import Tables
from canal_ha.source.history.destination_history import DestinationHistory
from canal_ha.source.positions.locate import BinlogEnd
from canal_ha.source.server.dump import Dump, DumpEvent, DumpFailed, Upstream
from canal_ha.store.ring import Ring
from lab.mysql import CANAL
from lab.ports import LOOPBACK

BATCH_BYTES = 1 << 20  # about the size of a client's batch
EVERYTHING = 1 << 20  # size of a GET that takes all entries


def ingest(port: int, start: LogPosition, rows: int, tables: str, tls: TlsConfig) -> float:
    """Return the seconds from connecting until this many rows are in the ring."""
    config = InstanceConfig(
        destination="bench", master=SourceConfig(host=LOOPBACK, port=port, tls=tls), username=CANAL, password=CANAL
    )
    ring = Ring(
        buffer_size=config.buffer_size,
        mem_unit=config.buffer_mem_unit,
        batch_mode=BatchMode.MEMSIZE,
        ddl_isolation=False,
    )
    sink = Sink(ring.put, config.decode)
    done = threading.Event()
    errors: list[str] = []
    history = DestinationHistory(config, Tables(config).fetch, None, lambda name, /, *, alarm=False, **facts: None)

    def accept(segment: Segment) -> None:
        sink.accept(segment)
        if ring.put_rows >= rows:
            done.set()
        elif ring.put_bytes - ring.ack_bytes >= BATCH_BYTES:
            batch = ring.get(EVERYTHING)
            assert batch is not None
            ring.ack(batch.range.end, batch.range.end_seq)

    def make_decoder(
        source: Source, begin: LogPosition, *, searching: bool = False, end: BinlogEnd | None = None
    ) -> Decoder:
        known = history.view(begin, dump, searching=searching)
        return Decoder(
            source=source,
            journal=begin.journal,
            position=begin.offset,
            options=config.decode,
            tables=TableFilter(tables, ""),
            fields=FieldFilter("", ""),
            history=known,
        )

    def report(event: DumpEvent) -> None:
        if isinstance(event, DumpFailed):
            errors.append(str(event.error))
            done.set()

    dump = Dump(
        config,
        lambda: Upstream(config, make_decoder),
        replica=replica(config.destination, 1001),
        start=start,
        accept=accept,
        report=report,
    )
    began = time.perf_counter()
    dump.start()
    done.wait()
    seconds = time.perf_counter() - began
    if errors:
        raise SystemExit(errors[0])
    dump.stop()
    dump.join(10)
    return seconds


def main() -> None:
    """Read the command line, print the figures."""
    port, journal, offset, rows, tables, *mode = sys.argv[1:]
    tls = TlsConfig(*mode or ["DISABLED"])
    before = resource.getrusage(resource.RUSAGE_SELF)  # the start of Python is not counted
    seconds = ingest(int(port), LogPosition(journal, int(offset)), int(rows), tables.replace("\\\\", "\\"), tls)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "rows": int(rows),
                "seconds": seconds,
                "cpu_s": used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime,
                "memory_bytes": used.ru_maxrss * 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
