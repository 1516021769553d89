"""When the reactor may read a dump, by what single chunks cost."""

from __future__ import annotations

from canal_ha.source.server.calm import LONG_S, LOOKS, NOT_LENT_S, QUIET_CHUNKS, Calm

BYTES = 100


class Dump:
    """Small chunks, each of which takes as much processor time as the test says. now: seconds."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._used_s = 0.0
        self.calm = Calm(self._processor_s)
        self.asked = 0

    def _processor_s(self) -> float:
        self.asked += 1
        return self._used_s

    def chunk(self, takes_s: float, *, waits_s: float = 0.0, may_block: bool = False) -> None:
        """Decode a chunk.

        waits_s: for a processor.
        may_block: it holds a table or a statement that the decoder has not seen.
        """
        self.calm.began(BYTES, self.now)
        if may_block:
            self.calm.interrupted()
        self._used_s += takes_s
        self.now += takes_s + waits_s
        self.calm.ended(BYTES, self.now)

    @property
    def lent(self) -> bool:
        """Whether the reactor may begin to read."""
        return self.calm.reached(self.now)


def test_a_table_that_is_new_keeps_no_stream_from_the_reactor_for_long() -> None:
    """To learn its columns takes long once; the next rows of it do not."""
    dump = Dump()
    dump.chunk(10 * LONG_S, may_block=True)
    for _ in range(QUIET_CHUNKS):
        assert not dump.lent
        dump.chunk(0.0)
    assert dump.lent


def test_a_small_chunk_that_takes_long_does() -> None:
    """Its table has hundreds of columns, and the next chunk will take as long."""
    dump = Dump()
    for _ in range(QUIET_CHUNKS):
        dump.chunk(2 * LONG_S)
    assert not dump.lent
    dump.now += NOT_LENT_S
    assert dump.lent


def test_rows_of_a_wide_table_between_others_do_too() -> None:
    """Each of them keeps the reactor for long."""
    dump = Dump()
    for _ in range(2):
        dump.chunk(2 * LONG_S)
        for _ in range(LOOKS - 1):
            dump.chunk(0.0)
    assert not dump.lent


def test_a_chunk_that_waits_for_a_processor_does_not() -> None:
    """Whoever else uses the processors takes them from a thread just the same."""
    dump = Dump()
    for _ in range(2 * QUIET_CHUNKS):
        dump.chunk(LONG_S / 2, waits_s=LONG_S)
    assert dump.lent


def test_a_chunk_that_is_decoded_at_once_asks_for_no_processor_time() -> None:
    """The question takes longer than to deliver a row."""
    dump = Dump()
    for _ in range(100):
        dump.chunk(LONG_S / 10)
    assert dump.lent
    assert dump.asked == 0
