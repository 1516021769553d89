"""The kernel reuses memory, but never memory that is still referenced."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from canal_ha.decode.kernel import BUILD
from canal_ha.decode.kernel.buffers import Landing, Spares
from tests.sampling import examples

LARGE = 100_000  # bytes of messages and columns whose memory counts
SIZES = st.sampled_from([1, 2, 1000, LARGE, LARGE + 1, 2 * LARGE])


def landed(landing: Landing, data: bytes) -> bytes:
    with landing.begin(len(data)) as room:
        room[:] = data
    return landing.finish()


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(SIZES, st.booleans()), max_size=30), st.integers(0))
def test_a_message_that_is_kept_stays_what_it_was(messages: list[tuple[int, bool]], seed: int) -> None:
    """A message that is kept, or a view of it, does not change when later messages arrive."""
    chance = random.Random(seed)
    landing = Landing()
    kept: list[tuple[bytes | memoryview, bytes]] = []
    for size, keep in messages:
        data = chance.randbytes(size)
        message = landed(landing, data)
        assert message == data
        assert hash(message) == hash(data)
        assert type(message) is bytes
        if keep:
            kept.append((chance.choice((message, memoryview(message)[size // 2 :])), data))
        del message
    for found, data in kept:
        assert found == data[len(data) - len(found) :]


def test_memory_of_a_message_is_used_again() -> None:
    """The compiled kernel reuses the memory of a large message."""
    landing = Landing()
    places = {id(landed(landing, bytes(LARGE))) for _ in range(5)}
    assert BUILD == "interpreted" or len(places) == 1


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(SIZES, st.booleans()), max_size=30))
def test_a_bytearray_that_is_kept_stays_what_it_was(wanted: list[tuple[int, bool]]) -> None:
    """A bytearray that is kept, or a view of it, does not change, and each bytearray taken is empty."""
    spares = Spares()
    kept: list[tuple[bytearray | memoryview, int]] = []
    for number, (size, keep) in enumerate(wanted):
        taken = spares.take(size)
        assert taken == b""
        taken += bytes([number]) * size
        if keep:
            kept.append((memoryview(taken) if number % 2 else taken, number))
        del taken
    for found, number in kept:
        assert bytes(found) == bytes([number]) * len(found)


def test_memory_of_a_column_is_used_again() -> None:
    """The compiled kernel reuses large bytearrays, and takes the one of the right size."""
    spares = Spares()
    first, second = spares.take(LARGE), spares.take(2 * LARGE)
    places = id(first), id(second)
    del first, second
    again = spares.take(2 * LARGE), spares.take(LARGE)
    assert BUILD == "interpreted" or (id(again[1]), id(again[0])) == places
