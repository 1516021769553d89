"""Lineage: which writer wrote which segments of a spool. Number and writer together identify a segment. Pure.

A spool restored from a copy issues numbers again that targets, checkpoints and the server's cursor already know. A
writer's name has a random part, so number and writer together are unique. A claim such as "everything up to segment 20
of writer W" is compared with what this spool knows of W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

WRITERS_KEPT = 1000  # they are in every manifest
_RANDOM_BITS = 32


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    """The term of one writer. writer: random, so that two writers that claim the same number still have an order."""

    number: int
    writer: str

    def __str__(self) -> str:
        return f"{self.number:08d}-{self.writer}"

    @classmethod
    def parse(cls, text: str) -> Epoch:
        """Parse the text of `str`. Raises ValueError."""
        number, dash, writer = text.partition("-")
        if not (dash and number.isdigit() and writer):
            raise ValueError(f"{text[:80]!r} is not a writer of a spool")
        return cls(int(number), writer)

    @property
    def code(self) -> int:
        """The epoch as a whole number below 2**63, for targets that store only numbers."""
        return self.number << _RANDOM_BITS | int(self.writer, 16)

    @classmethod
    def of_code(cls, code: int) -> Epoch:
        """Return the epoch with this code."""
        return cls(code >> _RANDOM_BITS, f"{code & ((1 << _RANDOM_BITS) - 1):08x}")


@dataclass(frozen=True, slots=True)
class ReportedProgress:
    """The claim of a target, a checkpoint or a cursor's mark to have everything up to a segment.

    seq: number of the segment; -1 for none.
    writer: its writer; None in a claim of a version that stored only numbers.
    """

    seq: int
    writer: Epoch | None = None


@dataclass(frozen=True, slots=True)
class Writer:
    """A writer and its segments.

    epoch: the writer's term.
    first: number of its first segment; its last one is before the next writer's first.
    follows: the server confirmed, or the operator accepted, that nothing is missing before its first segment.
    """

    epoch: Epoch
    first: int
    follows: bool


@dataclass(frozen=True, slots=True)
class Lineage:
    """The writers of one spool, in the order of their segments.

    writers: the latest writers.
    since: first segment that was written by a version that stores writers; None: unknown.
    forgotten: number of the newest epoch that is no longer in `writers`; 0 for none.
    """

    writers: tuple[Writer, ...] = ()
    since: int | None = None
    forgotten: int = 0

    def writer_of(self, seq: int) -> Epoch | None:
        """Return the writer of a segment; None if unknown."""
        return next((writer.epoch for writer in reversed(self.writers) if writer.first <= seq), None)

    def with_segment(self, seq: int, epoch: Epoch, *, follows: bool) -> Lineage:
        """Return the lineage with one more segment."""
        if self.writers and self.writers[-1].epoch == epoch:
            return self
        writers = (*self.writers, Writer(epoch, seq, follows))
        gone = writers[:-WRITERS_KEPT]
        forgotten = max([self.forgotten, *(writer.epoch.number for writer in gone)])
        return replace(self, writers=writers[len(gone) :], forgotten=forgotten)

    def covered(self, claim: ReportedProgress, next_seq: int) -> tuple[int, bool]:
        """Return the last segment of this spool that a claim covers, and whether the claim ends within the spool.

        (-1, False) for a writer that this spool never had: the two histories cannot be compared.

        claim: progress that a target, checkpoint or cursor reports.
        next_seq: number of the next segment.
        """
        if claim.writer is None:
            bound = next_seq if self.since is None else self.since
            return (claim.seq, True) if claim.seq < bound else (bound - 1, False)
        ends = [writer.first - 1 for writer in self.writers[1:]] + [next_seq - 1]
        for writer, end in zip(self.writers, ends, strict=False):
            if writer.epoch == claim.writer:
                return (claim.seq, True) if claim.seq <= end else (end, False)
        before = self.writers[0].first if self.writers else 0
        if claim.writer.number <= self.forgotten and claim.seq < before:
            return claim.seq, True
        return -1, False

    def follow(self, seqs: Sequence[int]) -> bool:
        """Return whether nothing was missing before the first segment of any of these segments' writers."""
        known = {writer.epoch: writer.follows for writer in self.writers}
        epochs = {self.writer_of(seq) for seq in seqs}
        return all(epoch is not None and known[epoch] for epoch in epochs)
