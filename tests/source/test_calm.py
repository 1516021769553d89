"""When the reactor may read a dump, by what single chunks cost."""

from __future__ import annotations

from canal_ha.source.server.calm import LONG_S, NOT_LENT_S, QUIET_CHUNKS, Calm

BYTES = 100
NOW = 1000.0


class Dump:
    """Small chunks, each of which takes as much processor time as the test says."""

    def __init__(self) -> None:
        self._used_s = 0.0
        self.calm = Calm(lambda: self._used_s)

    def chunk(self, takes_s: float, *, may_block: bool = False) -> None:
        """Decode a chunk. may_block: it holds a table or a statement that the decoder has not seen."""
        self.calm.began(BYTES, NOW)
        if may_block:
            self.calm.interrupted()
        self._used_s += takes_s
        self.calm.ended(BYTES, NOW)


def test_a_table_that_is_new_keeps_no_stream_from_the_reactor_for_long() -> None:
    """To learn its columns takes long once; the next rows of it do not."""
    dump = Dump()
    dump.chunk(10 * LONG_S, may_block=True)
    for _ in range(QUIET_CHUNKS):
        assert not dump.calm.reached(NOW)
        dump.chunk(0.0)
    assert dump.calm.reached(NOW)


def test_a_small_chunk_that_takes_long_does() -> None:
    """Its table has hundreds of columns, and the next chunk will take as long."""
    dump = Dump()
    for _ in range(QUIET_CHUNKS):
        dump.chunk(2 * LONG_S)
    assert not dump.calm.reached(NOW)
    assert dump.calm.reached(NOW + NOT_LENT_S)
