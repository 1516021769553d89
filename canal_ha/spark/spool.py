"""Spool: the segments of one (destination, client id), one writer at a time, fenced by epochs.

A writer claims an epoch (a file), then reads the manifest of the newest earlier epoch, and writes its own manifest.
After each manifest it checks for claims of later epochs, and only then reports the segment as durable. If an older
writer saw no later claim, the later writer read its segment. If it saw one, nothing is acknowledged, and the server
delivers the entries again to the later writer. This only requires that a listing shows all earlier writes, as local
file systems and today's object stores guarantee. No two writers ever write the same file.

One thread owns a writer; any thread may read `manifest`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from canal_ha.errors import NoRoom, SpoolFenced, SpoolUnusable
from canal_ha.model.position import LogPosition
from canal_ha.spark import manifest as manifests
from canal_ha.spark import segments
from canal_ha.spark.lineage import Epoch, Lineage
from canal_ha.spark.manifest import Manifest, SegmentInfo
from canal_ha.spark.steps import Steps
from canal_ha.spark.storage import Storage

READ_ATTEMPTS = 5  # a later epoch can replace a manifest during the read


def newest_manifest(storage: Storage) -> Manifest | None:
    """Return the newest epoch's manifest; None for a spool that was never written. Raises SpoolUnusable."""
    for _ in range(READ_ATTEMPTS):
        epochs = manifests.manifests(storage.names())
        if not epochs:
            return None
        name = manifests.manifest_name(epochs[-1])
        try:
            return Manifest.from_bytes(storage.read(name), f"{storage.uri}/{name}")
        except FileNotFoundError:  # a later manifest replaced it
            continue
    raise SpoolUnusable(f"{storage.uri} changes faster than it can be read")


class SpoolWriter:
    """The current writer of a spool.

    follows: nothing is missing between the existing segments and those that this writer appends, as far as the server
        reported.
    """

    def __init__(self, storage: Storage, destination: str, retain_batches: int, steps: Steps) -> None:
        """Claim the next epoch.

        storage: of the spool.
        destination: name of the destination.
        retain_batches: number of micro-batches to keep.
        steps: called with the name of each step before it happens.
        Raises SpoolUnusable, also for a read-only spool, and NoRoom (try again).
        """
        self._storage = storage
        self._destination = destination
        self._retain_batches = retain_batches
        self._steps = steps
        self.follows = False
        if storage.problem:
            raise SpoolUnusable(f"canal: spoolDir: {storage.problem}")
        storage.tighten()
        claimed = manifests.claims(storage.names())
        self.epoch = Epoch(claimed[-1].number + 1 if claimed else 1, secrets.token_hex(4))
        storage.write(manifests.claim_name(self.epoch), b"")
        found = newest_manifest(storage) or Manifest(spool=secrets.token_hex(8), lineage=Lineage(since=0))
        self.manifest = found.from_first_of(storage.names())
        try:
            self._publish(self.manifest)
        except NoRoom:
            storage.delete([manifests.claim_name(self.epoch)])
            raise
        self._sweep()

    def append(
        self,
        frames: Sequence[bytes | memoryview],
        rows: dict[str, int],
        last: LogPosition,
        *,
        closed: bool,
        ddl: dict[str, str],
        statements: bool = True,
    ) -> None:
        """Make a segment durable; after the return its entries may be acknowledged.

        frames: the entries, in one or several pieces.
        rows: number of rows by `schema.table`.
        last: position of the last entry.
        closed: the segment ends at the end of a transaction.
        ddl: latest statement by `schema.table`.
        statements: whether the entries can have statements; see segments.Contents.
        Raises SpoolFenced (do not acknowledge), NoRoom (try again) and SpoolUnusable.
        """
        seq = self.manifest.next_seq
        name = manifests.segment_name(self.epoch, seq)
        data = segments.encode(self._destination, rows, frames, last.server, statements=statements)
        self._steps("segment")
        self._storage.write(name, data)
        self._steps("manifest")
        info = SegmentInfo(
            seq=seq,
            name=name,
            size_bytes=len(data),
            raw_bytes=sum(map(len, frames)),
            rows=sum(rows.values()),
            closed=closed,
            written_ms=time.time_ns() // 1_000_000,
            last=last,
        )
        self._publish(self.manifest.with_segment(info, ddl, self.epoch, follows=self.follows))

    def read_up_to(self, seq: int) -> None:
        """Note that a micro-batch that ended with this segment is done; remove segments of older micro-batches."""
        if seq <= self.manifest.done or seq >= self.manifest.next_seq:
            return
        kept, gone = self.manifest.with_read(seq).pruned(self._retain_batches)
        names = [segment.name for segment in gone]
        try:
            self._publish(kept)
        except NoRoom:
            if not names:
                raise
            self.check()
            self._storage.delete(names)  # makes room; the old manifest lists missing segments until then
            self._publish(kept)
        self._storage.delete(names)

    def tell(self, problem: str) -> None:
        """Store why this writer stopped, for inspection of the spool; "" if it continues."""
        if problem != self.manifest.problem:
            self._publish(replace(self.manifest, problem=problem))

    def check(self) -> None:
        """Check for later epochs. Raises SpoolFenced if another writer claimed one."""
        latest = manifests.claims(self._storage.names())[-1:]
        if latest and latest[0] > self.epoch:
            raise SpoolFenced(
                f"canal: another driver writes the spool {self._storage.uri} now (epoch {latest[0]}, ours was"
                f" {self.epoch}): one query at a time may read destination {self._destination} with this client id"
            )

    def _publish(self, manifest: Manifest) -> None:
        """Write the manifest. It becomes visible to this process only if it is valid."""
        self._storage.write(manifests.manifest_name(self.epoch), manifest.to_bytes())
        self.check()
        self.manifest = manifest

    def _sweep(self) -> None:
        """Remove claims and manifests of earlier writers, and segments that no manifest lists."""
        listed = {segment.name for segment in self.manifest.segments}
        keep = {manifests.claim_name(self.epoch), manifests.manifest_name(self.epoch), *listed}
        own = str(self.epoch)
        older = [name for name in self._storage.names() if name not in keep and own not in name]
        unfinished = [name for name, target in self._storage.unfinished().items() if self._is_older(target)]
        self._storage.delete([*unfinished, *(name for name in older if self._is_older(name))])

    def _is_older(self, name: str) -> bool:
        epochs = manifests.claims([name]) + manifests.manifests([name]) + manifests.of_segments([name])
        return bool(epochs) and epochs[0] < self.epoch
