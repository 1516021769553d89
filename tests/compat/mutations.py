"""Seeded damage to recorded transactions, and the rules for what a decoder may deliver then.

A case is a recorded file's format description and three of its transactions; the middle one is damaged.
Breaking damage leaves a malformed event: the decoder must stop there, and deliver exactly what came before.
Other damage may leave a well-formed event with other content, such as another number. Then the decoder may continue,
but it raises no other error, delivers entries that can be parsed, and does not change what came before.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import zstandard

from canal_ha.config.model import DecodeOptions
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.decode.history.history import History
from canal_ha.decode.kernel import kinds
from canal_ha.errors import MalformedEvent, TableUnknown
from canal_ha.model.segment import Segment, Source
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab import golden
from lab.dump import packed, packets

TAGS = ("mysql9", "mysql9_gtid", "mariadb10.11", "mariadb10.11_gtid")
LARGEST_EVENT = 4000  # bytes; larger events take time and test nothing new
ROWS = (23, 24, 25, 30, 31, 32, 39)
COMPRESSED = {23: 166, 24: 167, 25: 168, 30: 169, 31: 170, 32: 171}  # rows events, and MariaDB's compressed ones
BEGINS = (kinds.GTID, kinds.ANONYMOUS_GTID, kinds.MARIADB_GTID)
CASE_REUSED = 20  # times; decoding it undamaged takes as long as decoding a mutation
UNKNOWN_EVENTS = (0, 43, 99, 159, 172, 255)
UNKNOWN_COLUMNS = (0x14, 0x40, 0x80, 0xA0, 0xF0, 0xF1)


@dataclass(frozen=True)
class Case:
    """Transactions to damage. target: the one that is damaged; before, after: whole transactions."""

    tag: str
    charset: str
    defined: bool  # whether SHOW CREATE TABLE has an answer; reading it takes longer than everything else
    head: bytes  # the format description
    before: tuple[bytes, ...]
    target: tuple[bytes, ...]
    after: tuple[bytes, ...]


@dataclass
class Mutation:
    """A damaged case. breaking: the first damaged event is malformed. offset: where that event begins."""

    events: list[bytes]
    breaking: bool
    offset: int
    cut: int = 0  # bytes missing at the end of everything
    as_packets: bool = False
    what: str = ""


@dataclass
class Outcome:
    """What a decoder delivered. error: class name and text of its error; "" if there was none."""

    entries: list[bytes] = field(default_factory=list)
    error: str = ""


# ---- recorded transactions


@cache
def transactions(tag: str) -> tuple[bytes, tuple[tuple[bytes, ...], ...]]:
    """Return the format description and the small transactions of a recorded file."""
    data = golden.binlog(tag)
    events: list[bytes] = []
    at = 4
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 9)[0]
        events.append(data[at : at + size])
        at += size
    found: list[list[bytes]] = []
    for event in events[1:]:
        if event[4] in BEGINS:
            found.append([])
        if found:
            found[-1].append(event)
    small = [tuple(one) for one in found if len(one) > 1 and all(len(event) < LARGEST_EVENT for event in one)]
    return events[0], tuple(small)


@cache
def definitions(tag: str) -> dict[str, str]:
    """Return the answers of SHOW CREATE TABLE by table name, as of the end of the file."""
    return {name.partition("/")[2]: text for name, text in golden.definitions(tag).items()}


@cache
def with_payload(tag: str) -> tuple[int, ...]:
    """Return the indexes of the compressed transactions."""
    return tuple(i for i, one in enumerate(transactions(tag)[1]) if any(event[4] == kinds.PAYLOAD for event in one))


def draw_case(chance: random.Random) -> Case:
    """Draw three adjacent transactions of a file. The middle one is compressed more often than in the file."""
    tag = chance.choice(TAGS)
    head, all_of_it = transactions(tag)
    at = chance.randrange(len(all_of_it) - 2)
    if with_payload(tag) and chance.random() < 0.15:
        at = chance.choice(with_payload(tag)) - 1
    charset = chance.choice(("utf-8", "utf-8", "utf-8", "gbk"))
    return Case(tag, charset, chance.random() < 0.15, head, *all_of_it[at : at + 3])


# ---- decoding


def decode(case: Case, events: Sequence[bytes], *, as_packets: bool = False, cut: int = 0) -> Outcome:
    """Decode events as a file or as a dump's packets. Raises any error but MalformedEvent and TableUnknown."""
    texts = definitions(case.tag) if case.defined else {}
    decoder = Decoder(
        source=Source("localhost", 3306),
        journal=golden.JOURNAL,
        position=4,
        options=DecodeOptions(charset=case.charset),
        tables=TableFilter(*golden.ALL_TABLES),
        fields=FieldFilter("", ""),
        history=History(lambda schema, table: texts.get(table)).view(None),
    )
    data = b"".join(map(packets, events)) if as_packets else b"\xfebin" + b"".join(events)
    data = data[: len(data) - cut]
    outcome = Outcome()
    try:
        for output in decoder.feed(data) if as_packets else decoder.feed_file(data):
            if isinstance(output, Segment):
                outcome.entries += output.entries()
        if not as_packets:
            for output in decoder.finish():
                assert isinstance(output, Segment)
                outcome.entries += output.entries()
    except (MalformedEvent, TableUnknown) as error:
        outcome.error = f"{type(error).__name__}: {error}"
    return outcome


@cache
def undamaged(case: Case) -> tuple[Outcome, int]:
    """Return the outcome without damage, and how many of its entries come before the target."""
    whole = decode(case, (case.head, *case.before, *case.target, *case.after))
    assert not whole.error, whole.error
    return whole, len(decode(case, (case.head, *case.before)).entries)


def check(case: Case, mutation: Mutation) -> Outcome:
    """Decode a damaged case, and check the outcome against the rules. Raises AssertionError."""
    whole, before = undamaged(case)
    outcome = decode(case, mutation.events, as_packets=mutation.as_packets, cut=mutation.cut)
    assert outcome.entries[:before] == whole.entries[:before], f"{mutation.what}: what came before is not the same"
    for raw in outcome.entries:
        entry = pb.Entry.FromString(raw)
        if entry.entryType == pb.ROWDATA:
            pb.RowChange.FromString(entry.storeValue)
    if mutation.breaking:
        assert outcome.error or (mutation.as_packets and mutation.cut), f"{mutation.what}: nobody noticed"
        assert outcome.entries == whole.entries[: len(outcome.entries)], f"{mutation.what}: something else came out"
        offsets = [pb.Entry.FromString(raw).header.logfileOffset for raw in outcome.entries]
        assert max(offsets, default=0) < mutation.offset, f"{mutation.what}: entries of the damaged event came out"
    return outcome


# ---- damage


def with_checksum(event: bytes, body: bytes, kind: int | None = None) -> bytes:
    """Return an event with another body (and type), and correct length and checksum. body: without checksum."""
    header = bytearray(event[:19])
    if kind is not None:
        header[4] = kind
    header[9:13] = struct.pack("<I", 19 + len(body) + 4)
    raw = bytes(header) + body
    return raw + struct.pack("<I", zlib.crc32(raw))


def body_of(event: bytes) -> bytes:
    """Return an event without header and checksum."""
    return event[19:-4]


Damage = Callable[[random.Random, Sequence[bytes]], tuple[Sequence[bytes], bool] | None]
"""(chance, events of the target) -> (its events afterwards, whether it breaks them); None when it does not apply."""


def _one(events: Sequence[bytes], index: int, *replacement: bytes) -> list[bytes]:
    return [*events[:index], *replacement, *events[index + 1 :]]


def _pick(chance: random.Random, events: Sequence[bytes], *types: int) -> int | None:
    found = [index for index, event in enumerate(events) if event[4] in types]
    return chance.choice(found) if found else None


def flip_under_the_checksum(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool]:
    """Flip one bit of an event, and keep its checksum."""
    index = chance.randrange(len(events))
    event = bytearray(events[index])
    at = chance.choice([*range(9), *range(13, len(event))])  # `wrong_length` changes the length
    event[at] ^= 1 << chance.randrange(8)
    # ROTATE and FORMAT_DESCRIPTION have rules of their own for checksums
    return _one(events, index, bytes(event)), event[4] not in (kinds.ROTATE, kinds.FORMAT_DESCRIPTION)


def wrong_length(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool]:
    """Make the header claim more or fewer bytes than there are."""
    index = chance.randrange(len(events))
    event = bytearray(events[index])
    right = len(event)
    claims = [*range(24), right - 1, right + 1, right + 4, right - 4, right * 2, 1 << 20, 1 << 30, (1 << 32) - 1]
    event[9:13] = struct.pack("<I", chance.choice([claim for claim in claims if claim != right]))
    return _one(events, index, bytes(event)), True


def flip_in_body(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool]:
    """Flip one to three bits of a body, and correct the checksum."""
    index = chance.randrange(len(events))
    body = bytearray(body_of(events[index]))
    for _ in range(chance.choice((1, 1, 2, 3))):
        body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
    return _one(events, index, with_checksum(events[index], bytes(body))), False


def set_in_body(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool]:
    """Set one byte of a body to a value that has a special meaning in many fields."""
    index = chance.randrange(len(events))
    body = bytearray(body_of(events[index]))
    body[chance.randrange(len(body))] = chance.choice((0, 1, 0x7F, 0x80, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF))
    return _one(events, index, with_checksum(events[index], bytes(body))), False


def flip_in_header(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool]:
    """Flip a bit of the type, time, server id, end position or flags, and correct the checksum."""
    index = chance.randrange(len(events))
    event = bytearray(events[index])
    at = chance.choice([*range(9), *range(13, 19)])
    event[at] ^= 1 << chance.randrange(8)
    return _one(events, index, with_checksum(bytes(event), body_of(bytes(event)))), False


def cut_body(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool]:
    """Cut off the end of a body, and correct length and checksum."""
    index = chance.randrange(len(events))
    body = body_of(events[index])
    return _one(events, index, with_checksum(events[index], body[: chance.randrange(len(body))])), False


def lose_or_repeat(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool]:
    """Remove an event, repeat it, or swap it with another."""
    index = chance.randrange(len(events))
    what = chance.randrange(3)
    if what == 0:
        return _one(events, index), False
    if what == 1:
        return _one(events, index, events[index], events[index]), False
    other = chance.randrange(len(events))
    swapped = list(events)
    swapped[index], swapped[other] = swapped[other], swapped[index]
    return swapped, False


def cut_the_first_row(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool] | None:
    """End a rows event behind the bitmap of NULLs of its first row, or a byte later."""
    index = _pick(chance, events, *ROWS)
    if index is None:
        return None
    event = events[index]
    body = body_of(event)
    start = images(body, event[4])
    nulls = (body[width_at(body, event[4])] + 7) // 8
    if not start or len(body) <= start + nulls + 2:
        return None
    return _one(events, index, with_checksum(event, body[: start + nulls])), True


def half_a_row_more(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool] | None:
    """Add a byte behind the last row of a rows event, as if another row began."""
    index = _pick(chance, events, *ROWS)
    if index is None:
        return None
    return _one(events, index, with_checksum(events[index], body_of(events[index]) + b"\0")), True


def another_width(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool] | None:
    """Give a rows event more or fewer columns than its table map has."""
    index = _pick(chance, events, *ROWS)
    if index is None:
        return None
    body = bytearray(body_of(events[index]))
    at = width_at(body, events[index][4])
    if body[at] > 249:
        return None
    body[at] = chance.choice([width for width in range(250) if width != body[at]])
    return _one(events, index, with_checksum(events[index], bytes(body))), True


def another_table_id(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool] | None:
    """Give a rows event a table id that no table map announced."""
    index = _pick(chance, events, *ROWS)
    if index is None:
        return None
    body = bytearray(body_of(events[index]))
    body[:6] = struct.pack("<Q", chance.randrange(1 << 20, 1 << 23))[:6]
    return _one(events, index, with_checksum(events[index], bytes(body))), True


def another_tables_map(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool] | None:
    """Replace a table map by that of another table with another number of columns, under the same table id."""
    index = _pick(chance, events, kinds.TABLE_MAP)
    if index is None or not any(event[4] in ROWS for event in events):
        return None
    mine = body_of(events[index])
    tag = chance.choice(TAGS)
    others = [event for one in transactions(tag)[1] for event in one if event[4] == kinds.TABLE_MAP]
    other = body_of(chance.choice(others))
    if width_of(other) == width_of(mine):
        return None
    return _one(events, index, with_checksum(events[index], mine[:6] + other[6:])), True


def unknown_event(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool]:
    """Give an event a type that no server writes."""
    index = chance.randrange(len(events))
    event = events[index]
    return _one(events, index, with_checksum(event, body_of(event), chance.choice(UNKNOWN_EVENTS))), True


def unknown_column(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool] | None:
    """Give a column a type that no server has."""
    index = _pick(chance, events, kinds.TABLE_MAP)
    if index is None:
        return None
    body = bytearray(body_of(events[index]))
    at, width = types_at(bytes(body))
    body[at + chance.randrange(width)] = chance.choice(UNKNOWN_COLUMNS)
    return _one(events, index, with_checksum(events[index], bytes(body))), True


def bad_text(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool]:
    """Overwrite bytes anywhere in a body with invalid UTF-8."""
    index = chance.randrange(len(events))
    body = bytearray(body_of(events[index]))
    bad = chance.choice((b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xff\xfe", b"\xe4\xb8"))
    at = chance.randrange(len(body))
    body[at : at + len(bad)] = bad[: len(body) - at]
    return _one(events, index, with_checksum(events[index], bytes(body))), False


@cache
def zlib_bomb() -> bytes:
    """Return 64 MiB of zeros, compressed by zlib."""
    return zlib.compress(bytes(64 << 20), 1)


@cache
def zstd_bomb() -> bytes:
    """Return 64 MiB of zeros, compressed by zstd."""
    return zstandard.ZstdCompressor().compress(bytes(64 << 20))


def damaged_compressed_rows(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool] | None:
    """Compress a rows event as MariaDB does, mostly with damaged content, length or method."""
    index = _pick(chance, events, *COMPRESSED)
    if index is None:
        return None
    event = events[index]
    body = body_of(event)
    start = images(body, event[4])
    if not start:
        return None
    rows = body[start:]
    claim, squeezed, method, breaking = len(rows), zlib.compress(rows), 8, True
    what = chance.randrange(6)
    if what == 0:
        breaking = False  # correctly compressed: the same rows
    elif what == 1:
        claim = chance.choice((0, len(rows) - 1, len(rows) + 1, 1 << 24, (1 << 32) - 1))
    elif what == 2:
        squeezed = zlib_bomb()
    elif what == 3:
        squeezed = squeezed[: chance.randrange(len(squeezed))]
    elif what == 4:
        method = chance.choice((0, 1, 7))
    else:
        squeezed = rows
    head = bytes([method << 4 | 4]) + struct.pack(">I", claim)
    changed = with_checksum(event, body[:start] + head + squeezed, COMPRESSED[event[4]])
    return _one(events, index, changed), breaking


def damaged_payload(chance: random.Random, events: Sequence[bytes]) -> tuple[Sequence[bytes], bool] | None:
    """Damage the content, the claimed size or the method of a compressed transaction."""
    index = _pick(chance, events, kinds.PAYLOAD)
    if index is None:
        return None
    event = events[index]
    content, _ = payload_content(body_of(event))
    what = chance.randrange(6)
    if what == 0:  # other content, correctly compressed
        changed = bytearray(content)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        return _one(events, index, with_checksum(event, payload(bytes(changed)))), False
    if what == 1:  # claims fewer or more bytes
        claim = chance.choice((0, 1, len(content) - 1, len(content) + 1, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1))
        return _one(events, index, with_checksum(event, payload(content, claim))), True
    if what == 2:  # holds much more than it claims
        return _one(events, index, with_checksum(event, payload(content, len(content), zstd_bomb()))), True
    if what == 3:  # compressed data cut off
        squeezed = zstandard.ZstdCompressor().compress(content)
        squeezed = squeezed[: chance.randrange(len(squeezed))]
        return _one(events, index, with_checksum(event, payload(content, len(content), squeezed))), True
    if what == 4:  # an unknown method
        return _one(events, index, with_checksum(event, payload(content, len(content), content, method=7))), True
    nested = with_checksum(event, payload(content))  # one payload inside another; events inside have no checksum
    inner = nested[:9] + struct.pack("<I", len(nested) - 4) + nested[13:-4]
    return _one(events, index, with_checksum(event, payload(inner))), True


DAMAGE: tuple[Damage, ...] = (
    flip_under_the_checksum,
    wrong_length,
    flip_in_body,
    set_in_body,
    flip_in_header,
    cut_body,
    lose_or_repeat,
    cut_the_first_row,
    half_a_row_more,
    another_width,
    another_table_id,
    another_tables_map,
    unknown_event,
    unknown_column,
    bad_text,
    damaged_compressed_rows,
    damaged_payload,
)


def mutate(chance: random.Random, case: Case) -> Mutation:
    """Return the case with one kind of damage."""
    made = None
    while made is None:
        damage = chance.choice(DAMAGE)
        made = damage(chance, case.target)
    target, breaking = made
    first = next((old for old, new in zip(case.target, target, strict=False) if old != new), case.after[0])
    events = [case.head, *case.before, *target, *case.after]
    mutation = Mutation(events, breaking, start_of(first), what=damage.__name__)
    # a packet's header has the event's length too, and there it is right
    mutation.as_packets = chance.random() < 0.3
    if damage is lose_or_repeat and chance.random() < 0.3:
        last = [*case.target, *case.after]
        size = sum(map(len, last)) + (5 * len(last) if mutation.as_packets else 0)
        mutation.events = [case.head, *case.before, *last]
        # more than the transaction behind the target, so that the target is incomplete
        mutation.cut = chance.randrange(size - sum(map(len, case.target)) + 1, size)
        mutation.breaking = False
        mutation.what = "the end is missing"
    return mutation


# ---- where things are in an event


def start_of(event: bytes) -> int:
    """Return the offset that an event was recorded at."""
    length, end = struct.unpack_from("<II", event, 9)
    return int(end - length)


def width_at(body: bytes | bytearray, kind: int) -> int:
    """Return where a rows event has its number of columns."""
    extra: int = struct.unpack_from("<H", body, 8)[0] if kind >= 30 else 0
    return 8 + extra


def images(body: bytes, kind: int) -> int:
    """Return where the row images of a rows event begin; 0 if it has more than 249 columns."""
    at = width_at(body, kind)
    width = body[at]
    if width > 249:
        return 0
    return at + 1 + (width + 7) // 8 * (2 if kind in (24, 31, 39) else 1)


def types_at(body: bytes) -> tuple[int, int]:
    """Return where the column types of a table map begin, and how many there are."""
    at = 8
    at += body[at] + 2
    at += body[at] + 2
    assert body[at] < 251
    return at + 1, body[at]


def width_of(body: bytes) -> int:
    """Return how many columns a table map has."""
    return types_at(body)[1]


def payload_content(body: bytes) -> tuple[bytes, int]:
    """Return the events of a TRANSACTION_PAYLOAD, and the size that it claims for them."""
    at = claim = 0
    while body[at]:
        kind, size = body[at], body[at + 1]
        if kind == 3:
            value = body[at + 2 : at + 2 + size]
            claim = value[0] if size == 1 else int.from_bytes(value[1:], "little")
        at += 2 + size
    return zstandard.ZstdDecompressor().decompressobj().decompress(body[at + 1 :]), claim


def payload(content: bytes, claim: int | None = None, squeezed: bytes | None = None, method: int = 0) -> bytes:
    """Return the body of a TRANSACTION_PAYLOAD of these events.

    claim: the size it claims for them, if not the right one.
    squeezed: its compressed data, if not `content` compressed.
    """
    data = zstandard.ZstdCompressor().compress(content) if squeezed is None else squeezed
    fields = ((2, method), (3, len(content) if claim is None else claim), (1, len(data)))
    return b"".join(bytes([kind, len(packed(value))]) + packed(value) for kind, value in fields) + b"\0" + data


# ---- many


def run(seed: int, count: int) -> dict[str, tuple[int, int]]:
    """Damage `count` times, and check each outcome. Return kind of damage -> (times, errors raised).

    Raises AssertionError with seed and number of the first damage that breaks the rules.
    """
    chance = random.Random(seed)
    totals: dict[str, tuple[int, int]] = {}
    case = draw_case(chance)
    for number in range(count):
        if number % CASE_REUSED == 0:
            case = draw_case(chance)
        mutation = mutate(chance, case)
        try:
            outcome = check(case, mutation)
        except Exception as error:
            raise AssertionError(f"seed {seed}, number {number}, {case.tag}: {mutation.what}: {error!r}") from error
        times, errors = totals.get(mutation.what, (0, 0))
        totals[mutation.what] = (times + 1, errors + bool(outcome.error))
    return totals
