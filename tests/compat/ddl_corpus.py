"""Statements that change tables: every type, every form of CREATE and ALTER, and random alterations.

Files in ddl/, one case a line: types*.txt has a column type with attributes, for a column c; tables.txt a CREATE TABLE;
sequences.txt statements for one table, separated by `; `. `{t}` stands for the table, `\\n` for a line end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

_TEXTS = Path(__file__).parent / "ddl"
_RANDOM_TYPES = (
    "int",
    "bigint unsigned",
    "varchar(20)",
    "varchar(300)",
    "text",
    "decimal(8,3)",
    "datetime(3)",
    "enum('a','b')",
    "json",
    "blob",
    "char(4)",
    "double",
    "smallint zerofill",
    "bit(5)",
    "date",
)


def statements(flavor: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (table, statements for it). A server refuses some of them. flavor: `mysql` or `mariadb`."""
    for number, definition in enumerate(_lines("types.txt") + _lines(f"types_{flavor}.txt")):
        table = f"ty{number}x"
        yield (
            table,
            [
                f"CREATE TABLE {table} (id int PRIMARY KEY, c {definition})",
                f"ALTER TABLE {table} ADD c2 {definition.replace('c > 0', 'c2 > 0')} FIRST",
                f"ALTER TABLE {table} ADD (c3 int, c4 bigint)",
            ],
        )
    for number, text in enumerate(_lines("tables.txt") + _lines("sequences.txt")):
        table = f"ta{number}x"
        yield table, [statement.replace("{t}", table).replace("\\n", "\n") for statement in text.split("; ")]


def _lines(name: str) -> list[str]:
    return (_TEXTS / name).read_text(encoding="utf-8").splitlines()


def random_alter(table: str, columns: list[str], random: Random) -> str:
    """Return an ALTER TABLE of one to four items on these columns, mostly valid."""
    items = []
    for _ in range(random.randint(1, 4)):
        old, other, new = random.choice(columns), random.choice(columns), f"n{random.randint(0, 30)}"
        kind = random.choice(_RANDOM_TYPES)
        place = random.choice(["", "", " FIRST", f" AFTER `{other}`"])
        null = random.choice(["", " NOT NULL", " NULL"])
        items.append(
            random.choice(
                [
                    f"ADD COLUMN `{new}` {kind}{null}{place}",
                    f"ADD `{new}` {kind} COMMENT 'x, (y'{place}",
                    f"ADD (`{new}` {kind}, `{new}x` int)",
                    f"DROP `{old}`",
                    f"DROP COLUMN `{old}`, ADD `{old}` {kind}{place}",
                    f"MODIFY `{old}` {kind}{null}{place}",
                    f"CHANGE COLUMN `{old}` `{new}` {kind}{place}",
                    f"RENAME COLUMN `{old}` TO `{new}`",
                    f"ADD INDEX (`{old}`)",
                    f"ADD UNIQUE KEY `{new}` (`{old}`)",
                    "DROP PRIMARY KEY",
                    f"ADD PRIMARY KEY (`{old}`)",
                    f"DROP PRIMARY KEY, ADD PRIMARY KEY (`{old}`, `{other}`)",
                    f"ALTER `{old}` SET DEFAULT 1",
                    "COMMENT = 'y'",
                ]
            )
        )
    return f"ALTER TABLE {table} {', '.join(items)}"
