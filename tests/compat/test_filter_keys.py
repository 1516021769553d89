"""Each of canal's filter keys drops what it names and nothing else, from the properties to the entries."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from canal_ha.config.load import load_decoding
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, effective
from canal_ha.decode.history.history import History
from canal_ha.model.segment import Segment, Source
from canal_ha.sink import Sink
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab import golden

INSTANCE = "canal.instance.filter."
ROWS = frozenset({pb.INSERT, pb.UPDATE, pb.DELETE})
DDL = frozenset({pb.CREATE, pb.ALTER, pb.ERASE, pb.RENAME, pb.TRUNCATE, pb.CINDEX, pb.DINDEX})


def made(*sets: str) -> list[pb.Entry]:
    """Return the entries of a recorded file under these settings, as a client gets them."""
    decoding = load_decoding(sets, {})
    options = decoding.options
    texts = {name.partition("/")[2]: text for name, text in golden.definitions("mysql9").items()}
    decoder = Decoder(
        source=Source("localhost", 3306),
        journal=golden.JOURNAL,
        position=4,
        options=options,
        tables=effective(decoding.filter_regex, decoding.filter_black_regex, "", decoding.filter_client_mode),
        fields=FieldFilter(options.field_filter, options.field_black_filter),
        history=History(lambda schema, table: texts.get(table)).view(None),
    )
    segments: list[Segment] = []
    sink = Sink(segments.append, options)
    for output in decoder.feed_file(golden.binlog("mysql9")):
        if isinstance(output, Segment):
            sink.accept(output)
    return [pb.Entry.FromString(raw) for segment in segments for raw in segment.entries()]


@pytest.fixture(scope="module")
def everything() -> list[pb.Entry]:
    """Return the entries without any filter."""
    return made()


def is_rows(entry: pb.Entry) -> bool:
    """Return whether an entry has rows, and not the statement behind them."""
    return entry.entryType == pb.ROWDATA and bool(pb.RowChange.FromString(entry.storeValue).rowDatas)


def kept(entries: Iterable[pb.Entry], *, rows: frozenset[int] = ROWS, statements: frozenset[int]) -> list[pb.Entry]:
    """Return the entries with rows of these types, and those with statements of these types."""
    return [
        entry
        for entry in entries
        if entry.entryType == pb.ROWDATA and entry.header.eventType in (rows if is_rows(entry) else statements)
    ]


ANY = ROWS | DDL | {pb.QUERY, pb.XACOMMIT, pb.XAROLLBACK}


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        ("rows", frozenset[int]()),
        ("dml.insert", ROWS - {pb.INSERT}),
        ("dml.update", ROWS - {pb.UPDATE}),
        ("dml.delete", ROWS - {pb.DELETE}),
    ],
)
def test_rows(everything: list[pb.Entry], key: str, rows: frozenset[int]) -> None:
    """The key drops its kind of rows, or all rows. Every other entry with content stays the same."""
    found = made(f"{INSTANCE}{key}=true")
    assert kept(found, statements=ANY) == kept(everything, rows=rows, statements=ANY)


def test_statements(everything: list[pb.Entry]) -> None:
    """filter.query.ddl drops DDL, .dml the statements behind rows, .dcl other statements. Rows always stay."""
    assert kept(made(f"{INSTANCE}query.ddl=true"), statements=ANY) == kept(everything, statements=ANY - DDL)
    for key in ("dml", "dcl"):
        found = kept(made(f"{INSTANCE}query.{key}=true"), statements=ANY)
        assert kept(found, statements=frozenset()) == kept(everything, statements=frozenset())
        assert kept(found, rows=frozenset(), statements=DDL) == kept(everything, rows=frozenset(), statements=DDL)
        assert len(found) < len(kept(everything, statements=ANY))
    neither = made(f"{INSTANCE}query.dml=true", f"{INSTANCE}query.dcl=true")
    assert not kept(neither, rows=frozenset(), statements=ROWS | {pb.QUERY})


def test_transactions(everything: list[pb.Entry]) -> None:
    """filter.transaction.entry drops most begins and ends, and keeps all entries between them."""
    found = made(f"{INSTANCE}transaction.entry=true")
    assert kept(found, statements=ANY) == kept(everything, statements=ANY)
    ends = [entry for entry in found if entry.entryType == pb.TRANSACTIONEND]
    assert len(ends) < sum(entry.entryType == pb.TRANSACTIONEND for entry in everything) / 10


def test_tables_and_columns(everything: list[pb.Entry]) -> None:
    """regex, black.regex, field and black.field match names in any letter case."""
    found = made(f"{INSTANCE}regex=GOLDEN\\.t_.*", f"{INSTANCE}black.regex=.*\\.t_json,golden\\.t_geo")
    tables = {entry.header.tableName for entry in found if is_rows(entry)}
    assert tables == {
        name
        for entry in everything
        if is_rows(entry) and (name := entry.header.tableName).startswith("t_") and name not in ("t_json", "t_geo")
    }
    for key, columns in (("field", {"id", "v300"}), ("black.field", None)):
        for entry in made(f"{INSTANCE}{key}=golden.T_STR:ID/v300"):
            if is_rows(entry) and entry.header.tableName == "t_str":
                change = pb.RowChange.FromString(entry.storeValue)
                names = {column.name for row in change.rowDatas for column in (*row.beforeColumns, *row.afterColumns)}
                assert names == columns if columns else names.isdisjoint({"id", "v300"})


def test_table_errors() -> None:
    """table.error sets the option that skips rows of tables that cannot be known."""
    options = load_decoding((f"{INSTANCE}table.error=true",), {}).options
    assert options.filter_table_error  # what it does: tests/decode/test_decoder.py::test_a_table_that_cannot_be_told
