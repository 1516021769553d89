"""Tables of every column type, with extreme values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab import SqlServer

BOTH = ("mysql", "mariadb")


@dataclass(frozen=True, slots=True)
class Group:
    """One table: an id, then a column for each definition.

    columns: what follows a column's name, and SQL expressions of its values. () for a generated column.
    options: of the table.
    """

    name: str
    columns: Sequence[tuple[str, Sequence[str]]]
    options: str = ""
    flavors: Sequence[str] = BOTH

    def create(self, server: SqlServer, schema: str) -> None:
        """Create the table with as many rows as the longest list of values, and one of NULLs."""
        columns = ", ".join(f"c{number} {declared}" for number, (declared, _) in enumerate(self.columns))
        given = [(f"c{number}", values) for number, (_, values) in enumerate(self.columns) if values]
        names = ", ".join(name for name, _ in given)
        count = max(len(values) for _, values in given)
        rows = [", ".join(values[row % len(values)] for _, values in given) for row in range(count)]
        server.execute(
            "SET SESSION sql_mode = ''",
            "SET SESSION time_zone = '+00:00'",
            "SET NAMES utf8mb4",
            f"CREATE TABLE {schema}.{self.name} (id int NOT NULL AUTO_INCREMENT PRIMARY KEY, {columns}) {self.options}",
            *[f"INSERT INTO {schema}.{self.name} ({names}) VALUES ({row})" for row in rows],
            f"INSERT INTO {schema}.{self.name} (id) VALUES (NULL)",
        )


def _fractions(name: str, *values: str) -> list[tuple[str, list[str]]]:
    """Return columns of a temporal type with every number of decimals."""
    null = " NULL" if name == "timestamp" else ""
    return [(f"{name}({decimals}){null}", [f"'{value}'" for value in values]) for decimals in range(7)]


def _texts(type_: str, *lengths: int) -> tuple[str, list[str]]:
    return type_, ["''", "'  a  '", "'ä€😀'", *[f"REPEAT('x', {length})" for length in lengths]]


def _bytes(type_: str, *lengths: int) -> tuple[str, list[str]]:
    """Return a column of bytes, whose values can end in zeros."""
    values = ["''", "x'00'", "x'0000'", "x'610000'", "x'ff00fe00'", "x'20'", "x'6120'"]
    return type_, values + [f"REPEAT(x'c3', {length})" for length in lengths]


INTEGERS = Group(
    "integers",
    [
        *[
            (f"{name}{display}", [str(-(1 << bits - 1)), str((1 << bits - 1) - 1), "0", "-1", "7"])
            for name, bits in (("tinyint", 8), ("smallint", 16), ("mediumint", 24), ("int", 32), ("bigint", 64))
            for display in ("", "(3)")
        ],
        *[
            (f"{name} {sign}", [str((1 << bits) - 1), str(1 << bits - 1), "0", "1", str((1 << bits - 1) - 1)])
            for name, bits in (("tinyint", 8), ("smallint", 16), ("mediumint", 24), ("int", 32), ("bigint", 64))
            for sign in ("unsigned", "unsigned zerofill")
        ],
        ("bigint(255) unsigned zerofill", ["18446744073709551615", "0", "42"]),
        ("boolean", ["TRUE", "FALSE"]),
    ],
)

DECIMALS = Group(
    "decimals",
    [
        (
            f"decimal({precision},{decimals}){extra}",
            ["0", "-0", "1", "-1", "0.5", "-0.05", "1e100", "-1e100", "123456789.987654321", "-1e-30", "1e9", "10"],
        )
        for precision, decimals in (
            *((65, 30), (65, 0), (30, 30), (9, 9), (10, 0), (18, 9), (1, 0), (1, 1), (20, 5), (27, 18), (38, 10)),
            *((11, 1), (19, 10), (28, 10), (12, 3)),
        )
        for extra in ("", " zerofill")
    ],
)

_REALS = [
    "0",
    "-0e0",
    "0.1",
    "-0.1",
    "1e0/3",
    "1e15",
    "1e16",
    "123456789012345678",
    "1e-5",
    "1.5e-10",
    "16777217",
    "100",
]
FLOATS = Group(
    "floats",
    [
        *[
            (type_, [*_REALS, "3.4028234663852886e38", "-3.4028234663852886e38", "1.17549435e-38", "1e-45", "1e39"])
            for type_ in ("float", "float unsigned zerofill", "float(10,3)", "float(255,30)", "float(53)", "real")
        ],
        *[
            (type_, [*_REALS, "1.7976931348623157e308", "-1.7976931348623157e308", "2.2250738585072014e-308", "5e-324"])
            for type_ in ("double", "double unsigned zerofill", "double(20,5)", "double(255,30)", "double(15,0)")
        ],
    ],
)

BITS = Group(
    "bits",
    [
        (f"bit({bits})", ["b'0'", "b'1'", f"b'{'1' * bits}'", f"b'1{'0' * (bits - 1)}'", f"b'{'10' * 32}'"])
        for bits in (1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 48, 63, 64)
    ],
)

LABELS = Group(
    "labels",
    [
        ("enum('a','b c','d''e')", ["'a'", "'b c'", "'d''e'", "'none'", "''"]),
        (f"enum({', '.join(repr(f'label {n}') for n in range(255))})", ["1", "255", "'x'"]),
        (f"enum({', '.join(repr(f'label {n}') for n in range(300))})", ["1", "256", "300", "'x'"]),
        *[
            (
                f"set({', '.join(repr(f's{n}') for n in range(members))})",
                ["0", "1", str((1 << members) - 1), str(1 << members - 1), "''", "'s0'"],
            )
            for members in (1, 8, 9, 16, 17, 24, 25, 32, 33, 63, 64)
        ],
        ("enum('ä','€') CHARACTER SET latin1", ["'ä'", "'€'"]),
    ],
)

TIMES = Group(
    "times",
    [
        ("date", ["'0000-00-00'", "'1000-01-01'", "'9999-12-31'", "'2024-02-29'", "'2024-00-00'", "'0001-01-01'"]),
        ("year", ["1901", "2155", "0", "2000", "1999", "'0'"]),
        *_fractions(
            "datetime",
            *("0000-00-00 00:00:00", "1000-01-01 00:00:00", "9999-12-31 23:59:59", "2024-02-29 12:34:56.789012"),
            *("1969-12-31 23:59:59.999999", "2024-00-00 01:02:03.000001", "2000-01-01 00:00:00.9"),
        ),
        *_fractions(
            "timestamp",
            *("0000-00-00 00:00:00", "1970-01-01 00:00:01", "2038-01-19 03:14:07", "2024-02-29 12:34:56.789012"),
            *(
                "1972-03-01 00:00:00.000001",
                "2000-02-29 23:59:59.499999",
                "2024-03-31 02:30:00",
                "2037-12-31 23:59:59.1",
            ),
        ),
        *_fractions(
            "time",
            *(
                "00:00:00",
                "-00:00:00.5",
                "00:00:00.000001",
                "-00:00:00.000001",
                "838:59:59",
                "-838:59:59",
                "12:34:56.7",
            ),
            *("-12:34:56.789012", "100:00:00.99", "-01:00:00", "-99:59:59.999999", "23:59:59.949999"),
        ),
    ],
)

TEXTS = Group(
    "texts",
    [
        _texts("char(0)"),
        _texts("char(1)"),
        _texts("char(63)", 63),
        _texts("char(64)", 64),
        _texts("char(255)", 255),
        _texts("char(255) CHARACTER SET latin1", 255),
        _texts("char(10) CHARACTER SET ucs2", 10),
        _texts("char(255) CHARACTER SET utf8mb3", 255),
        _texts("varchar(0)"),
        _texts("varchar(63)", 63),
        _texts("varchar(64)", 64, 63),
        _texts("varchar(255) CHARACTER SET latin1", 249, 250, 251, 252, 253, 255),
        _texts("varchar(256) CHARACTER SET latin1", 255, 256),
        _texts("varchar(1000) CHARACTER SET utf32", 1000),
        _texts("tinytext", 255),
        _texts("text", 250, 251, 252, 253, 65535),
        _texts("mediumtext", 65535, 65536, 70000),
        _texts("longtext", 70000, 300000),
        _texts("text CHARACTER SET latin1", 1000),
    ],
    "CHARACTER SET utf8mb4",
)

CHARSETS = Group(
    "charsets",
    [
        (f"{type_} CHARACTER SET {charset}", ["''", "'abc '", "'äöü'", "'日本'", "'Ж'", "'€'", "'\\\\'", "'😀'"])
        for charset in (
            *("ascii", "big5", "cp1250", "cp1251", "cp850", "cp932", "euckr", "gb2312", "gbk", "greek", "hebrew"),
            *("koi8r", "latin1", "latin2", "latin7", "sjis", "swe7", "tis620", "ucs2", "ujis", "utf16", "utf16le"),
            *("utf32", "utf8mb3", "utf8mb4", "binary", "dec8", "hp8", "armscii8", "geostd8", "keybcs2", "macroman"),
        )
        for type_ in ("char(20)", "varchar(70)", "text")
    ],
)

BYTES = Group(
    "bytes",
    [
        _bytes("binary(0)"),
        _bytes("binary(1)"),
        _bytes("binary(4)"),
        _bytes("binary(16)", 16),
        _bytes("binary(255)", 255),
        _bytes("varbinary(0)"),
        _bytes("varbinary(10)", 10),
        _bytes("varbinary(255)", 250, 251, 255),
        _bytes("varbinary(256)", 255, 256),
        _bytes("varbinary(3000)", 3000),
        _bytes("tinyblob", 255),
        _bytes("blob", 65535),
        _bytes("mediumblob", 65536),
        _bytes("longblob", 200000),
    ],
)

SHAPES = Group(
    "shapes",
    [
        (name, [f"ST_GeomFromText('{text}')", f"ST_GeomFromText('{text}', 4326)"])
        for name, text in (
            ("geometry", "POINT(1 2)"),
            ("point", "POINT(-1.5 1e-7)"),
            ("linestring", "LINESTRING(0 0,1 1,2 2)"),
            ("polygon", "POLYGON((0 0,10 0,10 10,0 10,0 0),(5 5,7 5,7 7,5 7,5 5))"),
            ("multipoint", "MULTIPOINT(0 0,20 20)"),
            ("multilinestring", "MULTILINESTRING((10 10,20 20),(15 15,30 15))"),
            ("multipolygon", "MULTIPOLYGON(((0 0,10 0,10 10,0 10,0 0)))"),
            ("geometrycollection", "GEOMETRYCOLLECTION(POINT(10 10),LINESTRING(15 15,20 20))"),
        )
    ],
)

_DOCUMENTS = [
    *("'null'", "'true'", "'0'", "'-1'", "'32767'", "'-32769'", "'2147483648'", "'-9223372036854775808'"),
    *("'18446744073709551615'", "'1.0'", "'0.1'", "'-1.5e-10'", "'1e20'", "'1.7976931348623157e308'", "'1e15'"),
    *("'123456789.125'", "'\"text\"'", "'\"\"'", "'[]'", "'{}'", "'[1, [2, [3, {}]]]'", "'123456789012345680000'"),
    """'{"b": 1, "a": [null, true, false], "ä": "€😀", "": {"long key long key": -1}}'""",
    """'["quote \\\\" backslash \\\\\\\\ tab \\\\t null \\\\u0000 del \\\\u007f é \\\\u00e9"]'""",
    """CONCAT('["', REPEAT('x', 70000), '", ', REPEAT('1, ', 30000), '0]')""",
    """CONCAT('{"', REPEAT('k', 60000), '": 1}')""",
]
JSON = Group("documents", [("json", _DOCUMENTS)], "CHARACTER SET utf8mb4")

MYSQL_JSON = Group(
    "mysql_documents",
    [
        (
            "json",
            [
                "JSON_OBJECT('d', CAST(1.5 AS DECIMAL(3,1)), 'e', CAST(-1234567890123456789.5 AS DECIMAL(30,10)))",
                "JSON_ARRAY(CAST(0 AS DECIMAL(10,0)), CAST(12 AS DECIMAL(10,0)), CAST(0.10 AS DECIMAL(10,2)))",
                "JSON_ARRAY(CAST('1e30' AS DECIMAL(40,0)), CAST(7 AS UNSIGNED), 1e0, 123456.75e0)",
                "JSON_ARRAY(CAST('2024-02-29 23:59:59.012345' AS DATETIME(6)), CAST('-12:34:56.5' AS TIME(6)))",
                "JSON_ARRAY(x'00ff61', b'101', 2024, '2024-02-29', '00:00:00', 'base64:type15:no')",
            ],
        )
    ],
    "CHARACTER SET utf8mb4",
    ("mysql",),
)
DATES_IN_JSON = Group(
    "dates_in_json",
    [("json", ["JSON_ARRAY(CAST('2024-02-29' AS DATE))", "JSON_ARRAY(CAST('00:00:00' AS TIME))"])],
    flavors=("mysql",),
)
BYTES_IN_JSON = Group("bytes_in_json", [("json", ["JSON_ARRAY('base64:type15:YQ==')"])], flavors=("mysql",))
DECIMALS_IN_JSON = Group(
    "decimals_in_json", [("json", ["JSON_ARRAY(CAST(12345678.5 AS DECIMAL(10,1)))"])], flavors=("mysql",)
)

VECTORS = Group(
    "vectors",
    [("vector(3)", ["STRING_TO_VECTOR('[1, -2.5, 3e10]')"]), ("vector(4000)", ["NULL"])],
    flavors=("mysql",),
)

GENERATED = Group(
    "generated",
    [
        ("int", ["1", "-5", "1000000"]),
        ("varchar(50)", ["'a'", "'ß€'", "''"]),
        ("bigint AS (c0 * 2) VIRTUAL", ()),
        ("bigint AS (c0 * 3) STORED", ()),
        ("varchar(60) AS (CONCAT(c1, '!')) VIRTUAL", ()),
        ("decimal(20,4) AS (c0 / 7) STORED", ()),
        ("float AS (c0 / 3) VIRTUAL", ()),
    ],
    "CHARACTER SET utf8mb4",
)

INVISIBLE = Group("invisible", [("int INVISIBLE", ["1", "2"]), ("text", ["'x'"])])

MARIADB = Group(
    "addresses",
    [
        ("inet6", ["'::'", "'::1'", "'2001:db8::'", "'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'", "'::ffff:1.2.3.0'"]),
        ("inet4", ["'0.0.0.0'", "'255.255.255.255'", "'10.0.0.1'", "'1.2.0.0'"]),
        ("uuid", ["'00000000-0000-0000-0000-000000000000'", "UUID()", "'ffffffff-ffff-4fff-bfff-ffffffffff00'"]),
        ("year(2)", ["70", "69", "0", "99"]),
        ("blob COMPRESSED", ["''", "'short'", "REPEAT('x', 1000)", "x'00ff'"]),
        ("varchar(2000) COMPRESSED", ["''", "'kurz ä'", "REPEAT('x', 1000)"]),
        ("text COMPRESSED", ["''", "'ä'", "REPEAT('€', 1000)"]),
        ("varbinary(300) COMPRESSED", ["''", "x'00'", "REPEAT('x', 300)"]),
    ],
    "CHARACTER SET utf8mb4",
    ("mariadb",),
)

LONG_KEYS = Group(
    "long_keys", [("text UNIQUE", ["'a'", "'b'"]), ("blob UNIQUE", ["x'00'", "x'0000'"])], "", ("mariadb",)
)

VERSIONED = Group("versioned", [("int", ["1", "2"])], "WITH SYSTEM VERSIONING", ("mariadb",))

GROUPS = (
    *(INTEGERS, DECIMALS, FLOATS, BITS, LABELS, TIMES, TEXTS, CHARSETS, BYTES, SHAPES, JSON, MYSQL_JSON, VECTORS),
    *(DATES_IN_JSON, BYTES_IN_JSON, DECIMALS_IN_JSON),
    *(GENERATED, INVISIBLE, MARIADB, LONG_KEYS, VERSIONED),
)
