"""XA transactions whose rows are delivered at XA COMMIT: what is kept, what is read again, where reading resumes."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from canal_ha.client.rows import rows_of
from canal_ha.config.model import DecodeOptions
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.decode.outputs import Output, Passed
from canal_ha.decode.prepared import KeptParts, XaCommit, Xid, xid_of_event, xid_of_statement
from canal_ha.errors import MalformedEvent
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.wire.proto import entry_protocol_pb2 as proto
from lab.dump import JOURNAL, SOURCE, AnyTable, Dump, entries, segments
from lab.process import memory_mib
from tests.decode.test_payload import TRANSACTION_PAYLOAD, body, events, large

MANY = 1 << 20
A = Xid(1, b"a", b"")


def never(commit: XaCommit, begin: LogPosition | None) -> Iterator[bytes]:
    raise AssertionError(f"{commit} is read again from {begin}")


def at_commit(parts: KeptParts, transaction_size: int = 1024, leaves_out: str = "") -> Decoder:
    """Return a decoder that delivers XA transactions when they commit."""
    return Decoder(
        source=SOURCE,
        journal=JOURNAL,
        position=4,
        options=DecodeOptions(transaction_size=transaction_size),
        tables=TableFilter("", leaves_out),
        fields=FieldFilter("", ""),
        history=AnyTable(),
        prepared=parts,
    )


def prepare(dump: Dump, *numbers: int, name: bytes = b"a", one_phase: bool = False) -> Dump:
    """Append what MySQL writes at XA PREPARE."""
    text = f"X'{name.hex()}',X'',1"
    dump.query(f"XA START {text}").table()
    for number in numbers:
        dump.insert(number)
    dump.query(f"XA END {text}")
    return dump.add(38, struct.pack("<BiII", one_phase, 1, len(name), 0) + name)


def decided(dump: Dump, how: str, name: bytes = b"a") -> Dump:
    """Append what MySQL writes at XA COMMIT or XA ROLLBACK."""
    return dump.query(f"XA {how} X'{name.hex()}',X'',1")


def fed(work: Decoder, dump: Dump, step: int = 0) -> list[Output]:
    data = bytes(dump.data)
    outputs: list[Output] = []
    for at in range(0, len(data), step or len(data)):
        outputs += work.feed(data[at : at + (step or len(data))])
    return outputs


def numbers(outputs: list[Output]) -> list[str]:
    return [str(row.after["c0"]) for row in rows_of(entries(outputs)) if row.after and "c0" in row.after]


def kept(most_bytes: int = MANY) -> KeptParts:
    return KeptParts(most_bytes, never)


@pytest.mark.parametrize("step", [0, 1, 7, 64])
def test_rows_come_at_the_commit(step: int) -> None:
    """The rows of a prepared transaction come behind those that commit before it, and once."""
    dump = prepare(Dump().format(), 1, 2)
    dump.begin().table().insert(3).xid()
    decided(dump, "COMMIT").begin().table().insert(4).xid()
    assert numbers(fed(at_commit(kept()), dump, step)) == ["3", "1", "2", "4"]


def test_a_rolled_back_transaction_has_no_entry() -> None:
    """XA ROLLBACK behind XA PREPARE: no begin, no rows, no end, no statement."""
    dump = decided(prepare(Dump().format(), 1), "ROLLBACK")
    assert entries(fed(at_commit(kept()), dump)) == []


def test_the_entries_have_the_place_of_the_commit() -> None:
    """They are those of an ordinary transaction at the offset of XA COMMIT, in order, and its end can be a cursor."""
    dump = prepare(Dump().format(), 1, 2)
    commit_at = dump.position
    decided(dump, "COMMIT")
    outputs = fed(at_commit(kept()), dump)
    (segment,) = segments(outputs)
    found = [proto.Entry.FromString(raw) for raw in segment.entries()]
    assert [one.entryType for one in found] == [
        proto.TRANSACTIONBEGIN,
        proto.ROWDATA,
        proto.ROWDATA,
        proto.TRANSACTIONEND,
    ]
    assert {one.header.logfileOffset for one in found} == {commit_at}
    assert list(segment.subs) == [0, 1, 2, 3]
    assert segment.kinds[-1] == EntryKind.END
    assert not segment.cut
    assert segment.position(3, consumed=True).offset == commit_at
    assert [out.position for out in outputs if isinstance(out, Passed)][-1] == dump.position


def test_reading_may_resume_behind_a_prepare() -> None:
    """The place behind XA PREPARE is a boundary, with nothing delivered yet."""
    dump = prepare(Dump().format(), 1)
    outputs = fed(at_commit(kept()), dump)
    assert not segments(outputs)
    assert [out.position for out in outputs if isinstance(out, Passed)][-1] == dump.position


def test_no_boundary_lies_inside_a_prepared_part_or_a_commit() -> None:
    """A dump that starts again never begins between XA START and XA PREPARE, nor between the rows of a commit."""
    dump = Dump().format()
    start = dump.position
    prepare(dump, 1, 2, 3)
    behind_prepare = dump.position
    decided(dump, "COMMIT")
    passed = [out.position for out in fed(at_commit(kept()), dump, step=1) if isinstance(out, Passed)]
    assert set(passed) <= {start, behind_prepare, dump.position}


def test_one_phase_is_delivered_at_once() -> None:
    """XA COMMIT ... ONE PHASE has no statement of its own."""
    dump = prepare(Dump().format(), 1, one_phase=True).begin().table().insert(2).xid()
    assert numbers(fed(at_commit(kept()), dump)) == ["1", "2"]


def test_a_name_is_used_again() -> None:
    """Each XA COMMIT delivers the last part prepared under its name."""
    dump = decided(prepare(Dump().format(), 1), "COMMIT")
    decided(prepare(dump, 2), "ROLLBACK")
    decided(prepare(dump, 3), "COMMIT")
    assert numbers(fed(at_commit(kept()), dump)) == ["1", "3"]


def test_interleaved_transactions() -> None:
    """Several prepared transactions commit in another order than they were prepared."""
    dump = Dump().format()
    for name in (b"a", b"b", b"c"):
        prepare(dump, name[0], name=name)
    decided(dump, "COMMIT", b"c")
    decided(dump, "ROLLBACK", b"a")
    decided(dump, "COMMIT", b"b")
    assert numbers(fed(at_commit(kept()), dump)) == ["99", "98"]


def test_mariadb_marks_the_part_in_its_gtid() -> None:
    """MariaDB writes no XA START: the flag of the GTID event begins the part."""

    def gtid(sequence: int, flags: int) -> None:
        dump.add(162, struct.pack("<QIB", sequence, 0, flags) + struct.pack("<iBB", 1, 1, 0) + b"a")

    dump = Dump().format(b"10.11.19-MariaDB")
    gtid(1, 76)
    dump.add(160, b"INSERT").table().insert(1).query("XA END X'61',X'',1")
    dump.add(38, struct.pack("<BiII", 0, 1, 1, 0) + b"a")
    gtid(2, 12)
    dump.add(160, b"INSERT").table().insert(2).xid()
    gtid(3, 141)
    decided(dump, "COMMIT")
    assert numbers(fed(at_commit(kept()), dump)) == ["2", "1"]


def test_savepoints_inside_are_obeyed() -> None:
    """Rows that a prepared transaction has taken back do not come when it commits."""
    dump = Dump().format().query("XA START X'61',X'',1").table().insert(1).query("SAVEPOINT `s`").table().insert(2)
    dump.query("ROLLBACK TO `s`").query("XA END X'61',X'',1").add(38, struct.pack("<BiII", 0, 1, 1, 0) + b"a")
    decided(dump, "COMMIT")
    assert numbers(fed(at_commit(kept()), dump)) == ["1"]


def test_beyond_the_budget_the_part_is_read_again_from_where_it_began() -> None:
    """The bytes kept never exceed the budget; the part comes in pieces, and its rows are the same."""
    source: list[bytes] = []
    asked: list[tuple[Xid, int, int | None]] = []

    class All(KeptParts):
        def add(self, event: bytes, offset: int) -> None:
            source.append(event)
            super().add(event, offset)

    def read(commit: XaCommit, begin: LogPosition | None) -> Iterator[bytes]:
        asked.append((commit.xid, commit.at.offset, begin.offset if begin else None))
        yield from source

    dump = Dump().format()
    began = dump.position
    prepare(dump, *range(10))
    commit_at = dump.position
    decided(dump, "COMMIT").begin().table().insert(10).xid()
    outputs = fed(at_commit(All(100, read), transaction_size=3), dump)
    assert numbers(outputs) == [str(number) for number in range(11)]
    assert asked == [(A, commit_at, began)]
    places = [place for one in segments(outputs) for place in zip(one.offsets, one.subs, strict=True)]
    subs = [sub for offset, sub in places if offset == commit_at]
    assert subs == list(range(12))


def test_a_decided_part_frees_its_bytes() -> None:
    """A budget for one part is enough for any number of them, one after the other."""
    dump = Dump().format()
    for number in range(20):
        decided(prepare(dump, number), "COMMIT" if number % 2 else "ROLLBACK")
    assert numbers(fed(at_commit(kept(400)), dump)) == [str(number) for number in range(1, 20, 2)]


def test_a_commit_whose_prepare_was_not_read_asks_for_it() -> None:
    """A stream that begins between XA PREPARE and XA COMMIT knows no place where the part begins."""
    asked: list[LogPosition | None] = []

    def read(commit: XaCommit, begin: LogPosition | None) -> Iterator[bytes]:
        asked.append(begin)
        return iter(())

    dump = decided(Dump().format(), "COMMIT").begin().table().insert(2).xid()
    assert numbers(fed(at_commit(KeptParts(MANY, read)), dump)) == ["2"]
    assert asked == [None]


def test_rows_before_a_commit_that_cannot_be_read_are_delivered() -> None:
    """An error while a part is read again loses nothing that came before it."""

    def read(commit: XaCommit, begin: LogPosition | None) -> Iterator[bytes]:
        raise MalformedEvent("", 0, "no such part")

    dump = decided(Dump().format().begin().table().insert(1).xid(), "COMMIT")
    outputs = at_commit(KeptParts(MANY, read)).feed(bytes(dump.data))
    assert numbers([next(out for out in outputs if isinstance(out, Segment))]) == ["1"]
    with pytest.raises(MalformedEvent, match="no such part"):
        list(outputs)


def test_a_commit_that_was_acknowledged_is_not_read_again() -> None:
    """A cursor at an XA COMMIT that is consumed needs none of its rows: their journal may be purged by now."""
    dump = Dump().format()
    at = LogPosition(JOURNAL, dump.position, consumed=True)
    decided(dump, "COMMIT").begin().table().insert(2).xid()
    assert numbers(fed(at_commit(KeptParts(MANY, never, at)), dump)) == ["2"]


def test_a_dump_from_the_prepare_of_one_phase_asks_for_the_rows_before_it() -> None:
    """A cursor at the begin of such a transaction has the offset of XA_PREPARE, which is behind its rows."""
    asked: list[tuple[Xid, LogPosition | None]] = []

    def read(commit: XaCommit, begin: LogPosition | None) -> Iterator[bytes]:
        asked.append((commit.xid, begin))
        return iter(())

    dump = Dump().format().add(38, struct.pack("<BiII", 1, 1, 1, 0) + b"a")
    fed(at_commit(KeptParts(MANY, read)), dump)
    assert asked == [(A, None)]


def test_the_rows_have_the_time_of_the_commit() -> None:
    """A transaction that was prepared long ago and commits now does not make the stream look late."""
    dump = prepare(Dump().format(), 1)
    dump.seconds += 3600
    decided(dump, "COMMIT")
    (segment,) = segments(fed(at_commit(kept()), dump))
    assert set(segment.timestamps) == {dump.seconds * 1000}
    assert {proto.Entry.FromString(raw).header.executeTime for raw in segment.entries()} == {dump.seconds * 1000}


def test_without_parts_rows_come_at_the_prepare() -> None:
    """canal.instance.xa = prepare: canal's entries, rows at XA PREPARE and the statement at its end."""
    work = Decoder(
        source=SOURCE,
        journal=JOURNAL,
        position=4,
        options=DecodeOptions(),
        tables=TableFilter("", ""),
        fields=FieldFilter("", ""),
        history=AnyTable(),
    )
    dump = decided(prepare(Dump().format(), 1), "ROLLBACK")
    found = [proto.Entry.FromString(raw) for raw in entries(fed(work, dump))]
    assert [one.header.eventType for one in found if one.entryType == proto.ROWDATA] == [
        proto.INSERT,
        proto.XAROLLBACK,
    ]


def part(*numbers: int, one_phase: bool = False) -> bytes:
    """Return the body of a compressed payload event that MySQL writes at XA PREPARE."""
    return body(events(prepare(Dump(checksum=False), *numbers, one_phase=one_phase)))


def test_a_compressed_part_is_kept_as_it_is() -> None:
    """Its events are compressed until they are delivered, and it is kept once."""
    packed = part(*range(1000))
    dump = Dump().format().add(TRANSACTION_PAYLOAD, packed).begin().table().insert(-1).xid()
    decided(dump, "COMMIT").begin().table().insert(-2).xid()
    wanted = ["-1", *map(str, range(1000)), "-2"]
    for step in (0, 50):
        assert numbers(fed(at_commit(kept(19 + len(packed))), dump, step)) == wanted
    with pytest.raises(AssertionError, match="is read again"):
        fed(at_commit(kept(18 + len(packed))), dump)


def test_a_compressed_part_is_rolled_back() -> None:
    """None of its entries come."""
    dump = decided(Dump().format().add(TRANSACTION_PAYLOAD, part(1)), "ROLLBACK")
    outputs = fed(at_commit(kept()), dump)
    assert entries(outputs) == []
    assert [out.position for out in outputs if isinstance(out, Passed)][-1] == dump.position


def test_a_compressed_part_of_one_phase() -> None:
    """It commits inside its payload, from which it is read, and reading goes on behind it."""
    dump = Dump().format().add(TRANSACTION_PAYLOAD, part(1, 2, one_phase=True)).begin().table().insert(3).xid()
    outputs = fed(at_commit(kept()), dump)
    assert numbers(outputs) == ["1", "2", "3"]
    assert [sub for one in segments(outputs) for sub in one.subs] == [0, 1, 2, 3, 0, 0, 0]
    assert [out.position for out in outputs if isinstance(out, Passed)][-1] == dump.position


def test_a_compressed_part_has_the_time_of_the_commit() -> None:
    """Also its events inside the payload."""
    dump = Dump().format().add(TRANSACTION_PAYLOAD, part(1))
    dump.seconds += 3600
    decided(dump, "COMMIT")
    (segment,) = segments(fed(at_commit(kept()), dump))
    assert set(segment.timestamps) == {dump.seconds * 1000}


def test_a_payload_inside_another_in_a_part_is_refused() -> None:
    """No server writes that."""
    inner = Dump(checksum=False).query("XA START X'61',X'',1").add(TRANSACTION_PAYLOAD, part(1))
    with pytest.raises(MalformedEvent, match="a compressed payload inside another"):
        fed(at_commit(kept()), Dump().format().add(TRANSACTION_PAYLOAD, body(events(inner))))


def deliver_large() -> None:
    """Prepare and commit 1.5 GiB of a table that the filter leaves out; print the peak of memory in MiB."""
    begin, end = Dump(checksum=False).query("XA START X'61',X'',1"), Dump(checksum=False).query("XA END X'61',X'',1")
    end.add(38, struct.pack("<BiII", 0, 1, 1, 0) + b"a")
    dump = Dump().format().add(TRANSACTION_PAYLOAD, b"".join(large(104, 15 << 20, begin, end)))
    outputs = fed(at_commit(kept(), leaves_out=r"s\..*"), decided(dump, "COMMIT"))
    assert isinstance(outputs[-1], Passed)
    assert outputs[-1].position == dump.position
    print(round(memory_mib("self", "VmHWM")))


@pytest.mark.nightly("test_payload.py: a payload above 1 GiB; the tests above: compressed parts")
def test_a_compressed_part_above_one_gibibyte_is_delivered_in_bounded_memory() -> None:
    """It is kept compressed and read in pieces."""
    code = "from tests.decode.test_prepared import deliver_large; deliver_large()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=120)
    assert int(done.stdout) < 400


@pytest.mark.parametrize("name", [b"", b"a", bytes(range(64))])
def test_identifiers(name: bytes) -> None:
    """The statement and the event give the same identifier."""
    xid = Xid(7, name, b"b")
    body = struct.pack("<BiII", 0, 7, len(name), 1) + name + b"b"
    assert xid_of_event(body) == (xid, False)
    assert xid_of_statement(f" {xid}") == xid


@pytest.mark.parametrize("written", ["4294967295", "-1"])
def test_a_format_id_above_two_to_the_31_is_the_one_of_its_event(written: str) -> None:
    """The event has it as a number with a sign. The commit would not find its prepared rows."""
    body = b"\0" + b"\xff" * 4 + (1).to_bytes(4, "little") * 2 + b"ab"
    assert xid_of_event(body) == (xid_of_statement(f"X'61',X'62',{written}"), False)
