"""How many bytes a dump asks its socket for."""

from __future__ import annotations

from canal_ha.source.connection.dump_connection import FEW_BYTES, ReceiveSize

MOST = 1 << 20


def test_small_transactions_do_not_pay_for_a_large_buffer() -> None:
    """A buffer of a mebibyte takes 30 microseconds to allocate, and a transaction some hundred to pass."""
    size = ReceiveSize(MOST)
    for _ in range(3):
        assert size.next == FEW_BYTES
        for _ in range(4):
            size.received(size.next)
        assert size.next == MOST
        size.received(MOST // 4)
        assert size.next == MOST  # the source is still ahead
        size.received(500)


def test_the_configured_size_is_the_most() -> None:
    """canal's own default is 16 KiB."""
    size = ReceiveSize(16384)
    for _ in range(4):
        assert size.next == 16384
        size.received(size.next)
