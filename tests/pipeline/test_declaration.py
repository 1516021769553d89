"""Declarations for the MySQL sink: any type text of a source is parsed or refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.errors import SinkRefused
from canal_ha.pipeline.declaration import Declaration, declaration

LABELS = st.lists(
    st.text(st.sampled_from("ab'\\\"`%),;- \n\0é字") | st.characters(exclude_categories=["Cs"]), max_size=12),
    min_size=1,
)
SAFE = re.compile(r"(enum|set)\((x'[0-9a-f]*',?)+\) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("int", "int"),
        ("INT(10) unsigned zerofill", "int(10) unsigned zerofill"),
        ("bigint unsigned", "bigint unsigned"),
        ("decimal(10,2)", "decimal(10,2)"),
        ("varchar(255)", "varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
        ("NCHAR(3)", "char(3) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
        ("long varchar", "long varchar CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
        ("varbinary(9)", "varbinary(9)"),
        ("json", "json"),
        ("double precision", "double precision"),
        ("enum('a','it''s')", "enum(x'61',x'69742773') CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
        ("set(0x61,_utf8mb4 'é')", "set(x'61',x'c3a9') CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
        ("enum('')", "enum(x'') CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
    ],
)
def test_types_of_the_source_are_declared_again(text: str, sql: str) -> None:
    """Name, numbers, labels and attributes are kept."""
    assert declaration(text, "s.t", "c").sql("utf8mb4_bin") == sql


@pytest.mark.parametrize(
    "text",
    [
        "",
        "int, b text",
        "int) SELECT 1 -- ",
        "int(10) unsigned DEFAULT 1",
        "int(10) COMMENT 'x'",
        "int(1/**/)",
        "varchar(-1)",
        "varchar(10,20,30)",
        "hologram(3)",
        "enum",
        "enum()",
        "enum('a' 'b')",
        "enum('a',)",
        "enum('a'),b text)",
        "enum(concat('a'))",
        "set(0xff)",
        "enum(_latin1 'é')",
        "int4 (select 1)",
    ],
)
def test_what_is_no_type_is_refused_with_its_column(text: str) -> None:
    """The error names the table and the column."""
    with pytest.raises(SinkRefused, match=r"column 'c' of s\.t "):
        declaration(text, "s.t", "c")


@given(st.sampled_from(["enum", "set"]), LABELS)
def test_any_labels_come_through_and_none_becomes_sql(name: str, labels: list[str]) -> None:
    """Labels in decode's spelling are parsed exactly; the SQL has hexadecimal literals in their place."""
    texts = ",".join("'" + label.replace("'", "''") + "'" for label in labels)
    found = declaration(f"{name}({texts})", "s.t", "c")
    assert found == Declaration(name, labels=tuple(labels))
    assert SAFE.fullmatch(found.sql("utf8mb4_bin"))


@given(st.text(max_size=60))
def test_any_text_is_refused_or_harmless(text: str) -> None:
    """Only words, numbers and hexadecimal literals get into a statement."""
    try:
        sql = declaration(text, "s.t", "c").sql("utf8mb4_bin")
    except SinkRefused:
        return
    assert re.fullmatch(r"[a-zA-Z0-9_ ]+(\([0-9,]+\)|\((x'[0-9a-f]*',?)+\))?[a-zA-Z0-9_ ]*", sql)
