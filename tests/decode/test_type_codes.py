"""Declared column types compared with logged ones."""

from __future__ import annotations

import pytest

from canal_ha.decode.type_codes import compatible


@pytest.mark.parametrize(
    ("text", "code", "meta"),
    [
        ("int", 3, 0),
        ("INTEGER(11) unsigned zerofill", 3, 0),
        ("tinyint(1)", 1, 0),
        ("boolean", 1, 0),
        ("middleint", 9, 0),
        ("serial", 8, 0),
        ("decimal", 246, 0x0A00),
        ("DECIMAL(65,30) unsigned", 246, 0x411E),
        ("fixed(0)", 246, 0x0A00),
        ("float", 4, 4),
        ("float(7,4)", 4, 4),
        ("double(53)", 5, 8),
        ("real", 5, 8),
        ("real", 4, 4),
        ("bit", 16, 0x0001),
        ("bit(9)", 16, 0x0101),
        ("bit(64)", 16, 0x0800),
        ("date", 10, 0),
        ("time(3)", 19, 3),
        ("datetime", 18, 0),
        ("datetime", 12, 0),
        ("timestamp(6)", 17, 6),
        ("year(4)", 13, 0),
        ("char", 254, 0xFE04),
        ("char(10)", 254, 0xFE28),
        ("char(255)", 254, 0xCEFC),
        ("char(0)", 254, 0xFE00),
        ("nchar(5)", 254, 0xFE0F),
        ("national varchar(5)", 15, 15),
        ("varchar(300)", 15, 1200),
        ("varchar(300)", 15, 300),
        ("varchar(60000)", 252, 3),
        ("varchar(20)", 141, 81),
        ("binary(20)", 254, 0xFE14),
        ("varbinary(300)", 15, 300),
        ("text", 252, 2),
        ("text", 252, 3),
        ("text(100)", 252, 1),
        ("longblob", 252, 4),
        ("mediumtext", 140, 3),
        ("enum('a','b,c','it''s')", 254, 0xF701),
        ("enum(" + ",".join(f"'m{i}'" for i in range(300)) + ")", 254, 0xF702),
        ("set('a')", 254, 0xF801),
        ("set(" + ",".join(f"'m{i}'" for i in range(33)) + ")", 254, 0xF808),
        ("json", 245, 4),
        ("json", 252, 4),
        ("geomcollection", 255, 4),
        ("vector(3)", 242, 4),
        ("vector(3)", 15, 12),
        ("uuid", 254, 0xFE10),
        ("inet6", 254, 0xFE10),
        ("inet4", 254, 0xFE04),
    ],
)
def test_what_agrees(text: str, code: int, meta: int) -> None:
    """A declared type fits each type under which MySQL or MariaDB logs it."""
    assert compatible(text, code, meta) is True


@pytest.mark.parametrize(
    ("text", "code", "meta"),
    [
        ("int", 8, 0),
        ("bigint", 3, 0),
        ("decimal(10,2)", 246, 0x0A03),
        ("float(30)", 4, 4),
        ("float", 5, 8),
        ("bit(8)", 16, 0x0101),
        ("time(3)", 19, 2),
        ("char(10)", 254, 0xFE14 + 1),
        ("char(10)", 15, 40),
        ("varchar(10)", 15, 41),
        ("varchar(10)", 252, 2),
        ("binary(20)", 254, 0xFE28),
        ("varbinary(10)", 15, 40),
        ("text", 252, 1),
        ("text", 15, 100),
        ("enum('a','b')", 254, 0xF702),
        ("enum('a')", 254, 0xF801),
        ("set('a')", 254, 0xFE01),
        ("json", 15, 4),
        ("point", 252, 4),
        ("uuid", 254, 0xFE24),
    ],
)
def test_what_contradicts(text: str, code: int, meta: int) -> None:
    """A declared type does not fit another type, length, precision or member count."""
    assert compatible(text, code, meta) is False


@pytest.mark.parametrize("text", ["", "frobnicator(3)", "()"])
def test_what_nobody_knows(text: str) -> None:
    """compatible() returns None for a text that is not a known type."""
    assert compatible(text, 3, 0) is None
