"""Lineage: who wrote which segments of a spool, so that a segment is known by more than its number. Pure.

A spool that is restored from a copy issues numbers again that targets, checkpoints and the server's cursor have seen.
The writer of a segment has a random part, so that number and writer together are issued once. What somebody says of
"everything up to segment 20 of writer W" is compared with what this spool knows of W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

WRITERS_KEPT = 1000  # they are in every manifest
_RANDOM_BITS = 32


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    """One writer's term. writer: random, so that two that claim the same number at once still have an order."""

    number: int
    writer: str

    def __str__(self) -> str:
        return f"{self.number:08d}-{self.writer}"

    @classmethod
    def parse(cls, text: str) -> Epoch:
        """What `str` makes. Raises ValueError."""
        number, dash, writer = text.partition("-")
        if not (dash and number.isdigit() and writer):
            raise ValueError(f"{text[:80]!r} is no writer of a spool")
        return cls(int(number), writer)

    @property
    def code(self) -> int:
        """As one whole number below 2**63, for targets that keep nothing else."""
        return self.number << _RANDOM_BITS | int(self.writer, 16)

    @classmethod
    def of_code(cls, code: int) -> Epoch:
        """The epoch that has this code."""
        return cls(code >> _RANDOM_BITS, f"{code & ((1 << _RANDOM_BITS) - 1):08x}")


@dataclass(frozen=True, slots=True)
class ReportedProgress:
    """What a target, a checkpoint or a cursor's mark says that it has: everything up to this segment.

    seq: the segment's number, -1 for nothing
    writer: who wrote it; None where a version spoke that told numbers only
    """

    seq: int
    writer: Epoch | None = None


@dataclass(frozen=True, slots=True)
class Writer:
    """One writer that wrote something.

    epoch: which one
    first: number of its first segment; its last one is before the next writer's first
    follows: the server confirmed, or the operator accepted, that nothing is missing before that
    """

    epoch: Epoch
    first: int
    follows: bool


@dataclass(frozen=True, slots=True)
class Lineage:
    """The writers of one spool, in the order of their segments.

    writers: the latest ones
    since: segments from here on were written by versions that tell writers; None: nobody knows
    forgotten: number of the newest epoch that is not among `writers` any more, 0 for none
    """

    writers: tuple[Writer, ...] = ()
    since: int | None = None
    forgotten: int = 0

    def writer_of(self, seq: int) -> Epoch | None:
        """Who wrote this segment; None when that is not known."""
        return next((writer.epoch for writer in reversed(self.writers) if writer.first <= seq), None)

    def with_segment(self, seq: int, epoch: Epoch, *, follows: bool) -> Lineage:
        """After one more segment."""
        if self.writers and self.writers[-1].epoch == epoch:
            return self
        writers = (*self.writers, Writer(epoch, seq, follows))
        gone = writers[:-WRITERS_KEPT]
        forgotten = max([self.forgotten, *(writer.epoch.number for writer in gone)])
        return replace(self, writers=writers[len(gone) :], forgotten=forgotten)

    def covered(self, claim: ReportedProgress, next_seq: int) -> tuple[int, bool]:
        """Up to which segment of this spool a claim reaches, and whether it reaches no further than the spool.

        claim: what somebody says
        next_seq: number of the segment to come

        (-1, False) for a writer that this spool never had: where the two histories part cannot be told.
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
        """Whether the writers of all these segments began where nothing was missing."""
        known = {writer.epoch: writer.follows for writer in self.writers}
        epochs = {self.writer_of(seq) for seq in seqs}
        return all(epoch is not None and known[epoch] for epoch in epochs)
