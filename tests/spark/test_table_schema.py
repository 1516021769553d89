"""The columns of format=table: declared, found, and kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from canal_ha.errors import OptionInvalid
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.options import SourceOptions, parse
from canal_ha.spark import shapes, table_schema
from canal_ha.spark.spool import SpoolWriter
from canal_ha.spark.steps import unobserved
from canal_ha.spark.storage import open_storage
from canal_ha.spark.table_schema import check_declared
from tests.spark.entries import ID, begin, ddl, end, frames, insert, rows

FOUND = (("id", "int(11)", 4), ("Name", "varchar(20)", 12))


def options(spool: Path, **more: str) -> SourceOptions:
    """Return the options of a query of s.t."""
    given = {"servers": "x:1", "destination": "d", "spoolDir": str(spool), "format": "table", "table": "s.t"}
    return parse({**given, **more})


def put(spool: Path, table: str, *more: bytes) -> None:
    """Append a segment with a row of a table, and more entries."""
    writer = SpoolWriter(open_storage(str(spool), "d", "1001"), "d", 100, unobserved)
    place = LogPosition("bin.000001", 120, 1000, 1)
    entries = frames([begin(100), insert(110, 1, table=table), *more, end(120)])
    writer.append([entries], {f"s.{table}": 1}, place, closed=True, ddl={})


def test_the_columns_are_those_of_the_newest_rows(tmp_path: Path) -> None:
    """Rows of other tables and statements behind them do not count."""
    later = rows(112, "INSERT", [(None, {"id": "2"})], [ID])
    put(tmp_path, "t", later, insert(114, 3, table="u"), ddl(116, "ALTER TABLE t ADD x INT"))
    assert table_schema.table_schema(options(tmp_path)) == shapes.table_of_columns((("id", "int(11)", 4),))


def test_a_declared_column_that_the_table_lacks_is_not_null_for_ever(tmp_path: Path) -> None:
    """The error names the column that was probably meant. Names ignore case."""
    declared = options(tmp_path, tableSchema="id INT, NAME STRING")
    check_declared(declared, ["id", "NAME"], FOUND)
    with pytest.raises(
        OptionInvalid, match=r"column 'nmae', which the newest rows of s\.t lack; did you mean 'Name'\?"
    ):
        check_declared(declared, ["id", "nmae"], FOUND)
    with pytest.raises(OptionInvalid, match=r"column 'late', which the newest rows of s\.t lack\. It would be NULL"):
        check_declared(declared, ["late"], FOUND)


def test_a_query_of_a_table_that_was_quiet_for_long_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spool keeps the columns that the first start found."""
    monkeypatch.setattr(table_schema, "LOOK_BACK", 1)
    with pytest.raises(OptionInvalid, match="tableSchema is missing"):
        table_schema.table_schema(options(tmp_path))
    put(tmp_path, "t")
    found = table_schema.table_schema(options(tmp_path))
    assert found == shapes.table_of_columns((("id", "int(11)", 4), ("name", "varchar(20)", 12)))
    put(tmp_path, "other")
    assert table_schema.table_schema(options(tmp_path)) == found
    with pytest.raises(OptionInvalid, match="tableSchema is missing"):
        table_schema.table_schema(options(tmp_path, table="s.u"))
    shutil.rmtree(tmp_path)
    with pytest.raises(OptionInvalid, match="tableSchema is missing"):
        table_schema.table_schema(options(tmp_path))
