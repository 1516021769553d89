"""What every form of statements is made of: the statement, the conversation with its runner, and random names."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random

from lab.differential.dialect import Dialect
from lab.differential.values import types
from lab.differential.world import MARK, Column, Name, Table, World, full, quoted

COLUMN_NAMES = (
    *("a", "b", "c", "d", "e", "name", "Price", "qty", "id", "id2", "c d", "é", "列", "select", "Order", "x`y"),
    *("1a", "$c", "a.b", "row", "system", "period", "comment", "first", "after", "it's", '"dq"', "a;b", "--x", "/*c*/"),
    *("key", "primary", "check", "index", "z" * 64, "%s", "{t}", "@v", "#h", "b)", "value", "0", "e1", "visible"),
)
HIDDEN_NAMES = ("row_start", "row_end", "my_row_id")
TABLE_NAMES = (*(f"t{number}" for number in range(8)), "T1", "t 1", "té", "select", "t-1", "t`1", "t.1", "表")


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL that runs in order on one session, as one step.

    rows_of: the tables whose changed rows it logs. Every other statement logs no rows.
    form: what kind of statement it is.
    """

    sql: tuple[str, ...]
    form: str
    rows_of: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """world: the tables after the statement. taken: the server accepted all of it."""

    world: World
    taken: bool = True


Form = Generator[Statement, Outcome, None]
"""Yields statements, and receives each one's outcome."""


@dataclass(frozen=True, slots=True)
class Maker:
    """A source of random names and definitions for one server."""

    random: Random
    dialect: Dialect

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random.random() < probability

    def column_name(self) -> str:
        """Return a name for a column, often an odd one."""
        if self.dialect.has("hidden_names") and self.chance(0.25):
            return self.random.choice(HIDDEN_NAMES)
        return self.random.choice(COLUMN_NAMES[:9] if self.chance(0.5) else COLUMN_NAMES)

    def free_name(self, world: World) -> Name:
        """Return a name that no table has."""
        taken = {table.name for table in world.tables}
        while True:
            schema = self.random.choice((world.schemas[0], *world.schemas))
            name = schema, f"{self.random.choice(TABLE_NAMES)}{self.random.choice(('', '', 'x', 'y'))}"
            if name not in taken and name[1] != MARK:
                return name

    def table(self, world: World) -> Table | None:
        """Return one of the tables; None if there is none."""
        return self.random.choice(world.tables) if world.tables else None

    def spelled(self, world: World, name: Name) -> str:
        """Return a name as SQL may write it: with the schema, or without if it is the default one."""
        if name[0] != world.schemas[0] or self.chance(0.5):
            return full(name)
        return name[1] if self.chance(0.5) and name[1].isalnum() and name[1] != "select" else quoted(name[1])

    def reference(self, column: Column) -> str:
        """Return a column's name in any letter case."""
        name = self.random.choice((column.name, column.name, column.name.swapcase()))
        return quoted(name if len(name) == len(column.name) else column.name)

    def definition(self, *, others: tuple[Column, ...] = ()) -> str:
        """Return a column's definition behind its name. others: columns that a generated one may use."""
        kind = self.random.choice(types(self.dialect))
        if others and not self.dialect.old and self.chance(0.1):
            other = quoted(self.random.choice(others).name)
            stored = self.random.choice(("VIRTUAL", "STORED", "")) if self.dialect.has("virtual") else "STORED"
            return f"varchar(100) GENERATED ALWAYS AS (concat('g', {other})) {stored}".rstrip()
        if self.chance(0.1):
            kind += " NOT NULL"
        if self.chance(0.08) and "NOT NULL" not in kind:
            kind += " COMMENT " + self.random.choice(("'x, (y'", "'it''s'", "'a\\'b'", "'`'", "'FIRST'", "'-- c'"))
        if self.chance(0.06) and not self.dialect.old:
            kind += " INVISIBLE"
        return kind

    def dressed(self, sql: str) -> str:
        """Return a statement with comments, executable or not, and other blanks."""
        dress = self.random.random()
        if dress < 0.06:
            return f"/* lead, FIRST */ {sql}"
        if dress < 0.12:
            return f"{sql} -- tail\n"
        if dress < 0.16:
            return f"/*!50000 {sql} */"
        if dress < 0.20:
            return sql.replace("TABLE", "\n  TABLE # comment '`\n", 1)
        if dress < 0.24:
            return sql.replace("TABLE", "/*!32312 TABLE */", 1)
        if dress < 0.30 and self.dialect.has("mariadb_comments"):
            whole = self.dialect.mariadb and self.chance(0.5)
            return f"/*M! {sql} */" if whole else f"{sql} /*M! COMMENT = 'm' */"
        if 0.30 < dress < 0.36 and self.dialect.has("set_statement") and self.dialect.mariadb:
            return f"SET STATEMENT lock_wait_timeout = 9, sort_buffer_size = 65536 FOR {sql}"
        return sql

    def session(self, sql: str) -> tuple[str, ...]:
        """Return a statement alone, or within a session setting that changes how it is read or logged."""
        found: list[tuple[str, ...]] = []
        mode = "SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION"
        if "`" in sql and '"' not in sql and "``" not in sql:
            found.append((f"{mode},ANSI_QUOTES'", sql.replace("`", '"'), f"{mode}'"))
        if self.dialect.has("no_backslash_escapes") and sql.startswith("ALTER") and "\\" not in sql:
            found.append((f"{mode},NO_BACKSLASH_ESCAPES'", f"{sql}, COMMENT = 'C:\\'", f"{mode}'"))
        if self.dialect.has("session_charsets"):
            charset = self.random.choice(("gbk", "latin1", "sjis"))
            found.append((f"SET NAMES {charset}", sql, "SET NAMES utf8mb4"))
        if self.dialect.has("two_phase") and self.dialect.mariadb:
            phases = "SET SESSION binlog_alter_two_phase"
            found.append((f"{phases} = 1", sql, f"{phases} = 0"))
        return self.random.choice(found) if found and self.chance(0.05 * len(found)) else (sql,)

    def ddl(self, sql: str, form: str, rows_of: tuple[Name, ...] = ()) -> Statement:
        """Return a step of one DDL statement in any spelling."""
        return Statement(self.session(self.dressed(sql)), form, rows_of)


FormOf = Callable[[Maker, World], Form]
"""Begins a form for a world."""
