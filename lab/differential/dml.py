"""Random DML: statements and transactions that change the rows of small tables."""

from __future__ import annotations

from lab.differential.forms import Form, Maker, Statement
from lab.differential.values import value
from lab.differential.world import Column, Table, World, full, quoted

MOST_KEYS = 40
"""Primary keys are below this number, so tables stay small and rows are often the same ones."""


def _literal(make: Maker, column: Column) -> str:
    if column.key and column.kind in ("int", "bigint", "smallint", "mediumint", "tinyint"):
        return str(make.random.randrange(MOST_KEYS))
    return value(column, make.random)


def _rows(make: Maker, columns: list[Column], count: int) -> str:
    return ", ".join(f"({', '.join(_literal(make, column) for column in columns)})" for _ in range(count))


def _written(make: Maker, table: Table) -> list[Column]:
    """Return columns that an INSERT names: all, or some of them in another order."""
    columns = [column for column in table.columns if column.written]
    if make.chance(0.3):
        make.random.shuffle(columns)
        needed = [column for column in columns if column.key]
        columns = needed + [column for column in columns if not column.key and make.chance(0.8)]
    return columns


def insert_into(make: Maker, table: Table) -> Statement:
    """Return an INSERT or REPLACE of one to three rows."""
    columns = _written(make, table)
    words = make.random.choice(("INSERT INTO", "INSERT IGNORE INTO", "REPLACE INTO", "REPLACE INTO"))
    if words == "REPLACE INTO" and not make.dialect.has("partial_replace"):
        columns = [column for column in table.columns if column.written]
    if not columns and not make.dialect.has("no_columns"):
        columns = [column for column in table.columns if column.written]
    names = ", ".join(quoted(column.name) for column in columns)
    sql = f"{words} {full(table.name)} ({names}) VALUES {_rows(make, columns, make.random.choice((1, 1, 2, 3)))}"
    if words == "INSERT INTO" and make.chance(0.5) and columns:
        column = make.random.choice(columns)
        sql += f" ON DUPLICATE KEY UPDATE {quoted(column.name)} = {_literal(make, column)}"
    return Statement((sql,), words.split()[0], (table.name,))


def update(make: Maker, table: Table) -> Statement:
    """Return an UPDATE of some rows or of all."""
    columns = [column for column in table.columns if column.written]
    if not columns:
        return insert_into(make, table)
    chosen = make.random.sample(columns, min(len(columns), make.random.choice((1, 1, 2, 3))))
    sets = ", ".join(f"{quoted(column.name)} = {_literal(make, column)}" for column in chosen)
    return Statement((f"UPDATE IGNORE {full(table.name)} SET {sets}{_some(make, table)}",), "UPDATE", (table.name,))


def delete(make: Maker, table: Table) -> Statement:
    """Return a DELETE of some rows, seldom of all."""
    some = _some(make, table) or ("" if make.chance(0.2) else " LIMIT 1")
    return Statement((f"DELETE FROM {full(table.name)}{some}",), "DELETE", (table.name,))


def _some(make: Maker, table: Table) -> str:
    numbers = [column for column in table.columns if column.kind in ("int", "bigint", "smallint")]
    if not numbers or make.chance(0.2):
        return ""
    column = make.random.choice([column for column in numbers if column.key] or numbers)
    return f" WHERE {quoted(column.name)} {make.random.choice(('<', '>', '>='))} {make.random.randrange(MOST_KEYS)}"


def _change(make: Maker, table: Table) -> Statement:
    return make.random.choice((insert_into, insert_into, insert_into, update, update, delete))(make, table)


def change(make: Maker, world: World) -> Form:
    """One to three statements on one table."""
    table = make.table(world)
    if table is not None:
        for _ in range(make.random.choice((1, 2, 3))):
            yield _change(make, table)


def everywhere(make: Maker, world: World) -> Form:
    """One INSERT into each table."""
    for table in world.tables:
        yield insert_into(make, table)


def several(make: Maker, world: World) -> Form:
    """INSERT ... SELECT between two tables, and an UPDATE or DELETE of both."""
    one, two = make.table(world), make.table(world)
    if one is None or two is None or one == two:
        return
    mine = make.random.choice([column for column in one.columns if column.written] or list(one.columns))
    theirs = make.random.choice(two.columns)
    a, b = quoted(mine.name), quoted(theirs.name)
    kind = make.random.randrange(3)
    if kind == 0:
        sql = f"INSERT IGNORE INTO {full(one.name)} ({a}) SELECT {b} FROM {full(two.name)} LIMIT 2"
        yield Statement((sql,), "INSERT SELECT", (one.name,))
    elif kind == 1 and theirs.written:
        sets = f"x.{a} = {_literal(make, mine)}, y.{b} = {_literal(make, theirs)}"
        sql = f"UPDATE IGNORE {full(one.name)} x, {full(two.name)} y SET {sets}"
        yield Statement((sql,), "UPDATE of two", (one.name, two.name))
    else:
        sql = f"DELETE x, y FROM {full(one.name)} x, {full(two.name)} y WHERE x.{a} = y.{b}"
        yield Statement((sql,), "DELETE of two", (one.name, two.name))


def transaction(make: Maker, world: World) -> Form:
    """Several statements on several tables, committed, rolled back, or rolled back in part."""
    tables = [table for table in (make.table(world), make.table(world)) if table is not None]
    if not tables:
        return
    sql: list[str] = ["BEGIN"]
    for _ in range(make.random.randint(1, 5)):
        sql += _change(make, make.random.choice(tables)).sql
        if make.chance(0.2):
            sql.append("SAVEPOINT s")
        if "SAVEPOINT s" in sql and make.chance(0.2):
            sql.append("ROLLBACK TO s")
    sql.append(make.random.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))
    yield Statement(tuple(sql), "transaction", tuple({table.name for table in tables}))
