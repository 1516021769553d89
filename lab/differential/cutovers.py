"""DDL of several statements: cut-overs of gh-ost and pt-online-schema-change, partition exchange, temporary tables."""

from __future__ import annotations

from lab.differential.ddl import alter_item
from lab.differential.dml import insert_into
from lab.differential.forms import Form, Maker, Statement
from lab.differential.values import value
from lab.differential.world import Name, Table, World, full, quoted


def _shared(old: Table, new: Table) -> str:
    """Return the columns that both tables have and a statement may write; "" if there are none."""
    names = {column.name for column in new.columns if column.written}
    return ", ".join(quoted(column.name) for column in old.columns if column.written and column.name in names)


def _swap(make: Maker, form: str, words: str, table: Table, copy: Name, gone: Name, *others: Name) -> Form:
    """Put a copy in the place of its table by one RENAME (words), write into it, and drop what is left."""
    outcome = yield Statement(
        (f"{words} {full(table.name)} TO {full(gone)}, {full(copy)} TO {full(table.name)}",), form
    )
    changed = outcome.world.table(table.name)
    if changed is not None:
        yield insert_into(make, changed)
    yield Statement((f"DROP TABLE IF EXISTS {', '.join(map(full, (*others, gone, copy)))}",), form)


def ghost(make: Maker, world: World) -> Form:
    """gh-ost: a changed copy, rows copied in batches, and a swap by one RENAME."""
    table = make.table(world)
    if table is None or len(table.name[1]) > 50:
        return
    schema, plain = table.name
    copy, gone = (schema, f"_{plain}_gho"), (schema, f"_{plain}_del")
    log = schema, f"_{plain}_ghc"
    yield Statement((f"DROP TABLE IF EXISTS {full(copy)}, {full(gone)}, {full(log)}",), "gh-ost")
    columns = "id bigint auto_increment primary key, hint varchar(64), value varchar(4096)"
    yield Statement((f"CREATE /* gh-ost */ TABLE {full(log)} ({columns})",), "gh-ost")
    yield Statement((f"CREATE /* gh-ost */ TABLE {full(copy)} LIKE {full(table.name)}",), "gh-ost")
    outcome = yield Statement((f"ALTER /* gh-ost */ TABLE {full(copy)} {alter_item(make, table)}",), "gh-ost")
    new = outcome.world.table(copy)
    if new is None:
        return
    columns = _shared(table, new)
    if columns:
        copied = f"INSERT IGNORE INTO {full(copy)} ({columns}) (SELECT {columns} FROM {full(table.name)} LIMIT 3)"
        yield Statement((f"INSERT INTO {full(log)} (hint, value) VALUES ('state', 'Migrated')",), "gh-ost", (log,))
        yield Statement((copied,), "gh-ost", (copy,))
        for _ in range(2):
            yield insert_into(make, table)
            yield Statement((copied,), "gh-ost", (copy,))
    yield from _swap(make, "gh-ost", "RENAME /* gh-ost */ TABLE", table, copy, gone, log)


def pt_osc(make: Maker, world: World) -> Form:
    """pt-online-schema-change: a changed copy, triggers that follow the table, and a swap by one RENAME."""
    table = make.table(world)
    if table is None or len(table.name[1]) > 50 or not table.keys:
        return
    schema, plain = table.name
    new, old = (schema, f"_{plain}_new"), (schema, f"_{plain}_old")
    yield Statement((f"DROP TABLE IF EXISTS {full(new)}, {full(old)}",), "pt-osc")
    yield Statement((f"CREATE TABLE {full(new)} LIKE {full(table.name)}",), "pt-osc")
    outcome = yield Statement((f"ALTER TABLE {full(new)} {alter_item(make, table)}",), "pt-osc")
    copy = outcome.world.table(new)
    columns = _shared(table, copy) if copy else ""
    if copy is None or not columns:
        return
    of_new = ", ".join("NEW." + name for name in columns.split(", "))
    trigger = full((schema, "pt_osc_ins"))
    replaces = f"REPLACE INTO {full(new)} ({columns}) VALUES ({of_new})"
    yield Statement((f"CREATE TRIGGER {trigger} AFTER INSERT ON {full(table.name)} FOR EACH ROW {replaces}",), "pt-osc")
    inserted = insert_into(make, table)
    yield Statement(inserted.sql, "pt-osc", (table.name, new))
    copied = f"INSERT LOW_PRIORITY IGNORE INTO {full(new)} ({columns}) SELECT {columns} FROM {full(table.name)}"
    yield Statement((f"{copied} /*pt-online-schema-change 1 copy nibble*/",), "pt-osc", (new,))
    inserted = insert_into(make, table)
    yield Statement(inserted.sql, "pt-osc", (table.name, new))
    yield Statement((f"ANALYZE TABLE {full(new)}",), "pt-osc")
    yield Statement((f"DROP TRIGGER IF EXISTS {trigger}",), "pt-osc")
    yield from _swap(make, "pt-osc", "RENAME TABLE", table, new, old)


def exchange(make: Maker, world: World) -> Form:
    """EXCHANGE PARTITION: rows move between tables without being logged."""
    one, two = make.free_name(world), make.free_name(world)
    if one == two:
        return
    names = [f"n{number}" for number in range(3)]
    make.random.shuffle(names)
    columns = f"id int, {', '.join(f'{name} int' for name in names)}"
    parts = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (1000), PARTITION p1 VALUES LESS THAN MAXVALUE)"
    form = "EXCHANGE PARTITION"
    yield make.ddl(f"CREATE TABLE {full(one)} ({columns}) {parts}", form)
    yield make.ddl(f"CREATE TABLE {full(two)} ({columns})", form)
    for name in (one, two):
        yield Statement((f"INSERT INTO {full(name)} VALUES (1, 2, 3, 4), (2, 5, 6, 7)",), form, (name,))
    if make.chance(0.5):
        for name in (one, two):
            yield make.ddl(f"ALTER TABLE {full(name)} MODIFY {names[2]} int AFTER id", form)
    sql = f"ALTER TABLE {full(one)} EXCHANGE PARTITION p0 WITH TABLE {full(two)}"
    yield make.ddl(sql, form)
    if make.dialect.mariadb and make.chance(0.5):
        name = make.free_name(world)
        yield make.ddl(f"ALTER TABLE {full(one)} CONVERT PARTITION p0 TO TABLE {full(name)}", form)
        yield Statement((f"INSERT INTO {full(name)} VALUES (3, 2, 3, 4)",), form, (name,))
    for name in (one, two):
        yield Statement((f"UPDATE {full(name)} SET n1 = n1 + 10",), form, (name,))
    yield make.ddl(f"ALTER TABLE {full(one)} {make.random.choice(('DROP', 'TRUNCATE'))} PARTITION p0", form)
    yield make.ddl(f"ALTER TABLE {full(one)} REMOVE PARTITIONING", form)


def temporary(make: Maker, world: World) -> Form:
    """A temporary table that hides a table of the same name, with other columns: nothing of it is logged."""
    table = make.table(world)
    if table is None:
        return
    name = full(table.name)
    form = "temporary table"
    columns = "x1 int, x2 varchar(20), x3 int"
    words = make.random.choice(("CREATE TEMPORARY TABLE", "CREATE TEMPORARY TABLE IF NOT EXISTS"))
    outcome = yield Statement((f"{words} {name} ({columns})",), form)
    if outcome.taken:
        yield Statement((f"INSERT INTO {name} VALUES (1, 'a', 3)",), form)
        if make.chance(0.6):
            yield Statement((f"ALTER TABLE {name} ADD x0 int FIRST, DROP x2",), form)
        if make.chance(0.5):
            yield Statement((f"TRUNCATE TABLE {name}",), form)
        if make.chance(0.3):
            hidden = full((table.name[0], "hidden"))
            yield Statement((f"ALTER TABLE {name} RENAME TO {hidden}",), form)
            yield Statement((f"DROP TABLE {hidden}",), form)
        if make.chance(0.3):
            yield Statement((f"CREATE INDEX i ON {name} (x1)",), form)
    yield Statement((f"DROP TEMPORARY TABLE IF EXISTS {name}",), form)
    yield insert_into(make, table)


def routine(make: Maker, world: World) -> Form:
    """A procedure that alters a table, a view, and their removal: the statement is logged when it runs."""
    table = make.table(world)
    if table is None:
        return
    procedure, view = full((world.schemas[0], "p")), full((world.schemas[0], "v"))
    body = f"ALTER TABLE {full(table.name)} {alter_item(make, table)}"
    yield Statement((f"DROP PROCEDURE IF EXISTS {procedure}",), "routine")
    yield Statement((f"CREATE PROCEDURE {procedure}() BEGIN {body}; END",), "routine")
    yield Statement((f"CREATE OR REPLACE VIEW {view} AS SELECT 1 AS a, 2 AS b",), "routine")
    yield Statement((f"CALL {procedure}()",), "routine")
    yield Statement((f"DROP VIEW IF EXISTS {view}",), "routine")


def database(make: Maker, world: World) -> Form:
    """DROP DATABASE and CREATE DATABASE of the second schema."""
    schema = quoted(world.schemas[1])
    yield Statement((f"DROP {make.random.choice(('DATABASE', 'SCHEMA'))} {schema}",), "DATABASE")
    yield Statement((f"CREATE DATABASE IF NOT EXISTS {schema} CHARACTER SET utf8mb4",), "DATABASE")
    name: Name = (world.schemas[1], "t0")
    yield make.ddl(f"CREATE TABLE {full(name)} (b int, a int PRIMARY KEY, c {make.definition()})", "DATABASE")


def xa(make: Maker, world: World) -> Form:
    """An XA transaction, committed or rolled back: rows are delivered with its commit only."""
    table = make.table(world)
    if table is None or not make.dialect.has("xa"):
        return
    inserted = insert_into(make, table)
    mine = f"'x{make.random.randrange(10**9)}'"
    end = make.random.choice((f"XA COMMIT {mine}", f"XA ROLLBACK {mine}"))
    sql = (f"XA START {mine}", *inserted.sql, f"XA END {mine}", f"XA PREPARE {mine}", end)
    yield Statement(sql, "XA", (table.name,))


def widen(make: Maker, world: World) -> Form:
    """Many columns of one type, of which two change places: only names tell them apart."""
    name = make.free_name(world)
    names = [f"w{number}" for number in range(make.random.randint(5, 12))]
    columns = ", ".join(f"{column} int" for column in names)
    outcome = yield make.ddl(f"CREATE TABLE {full(name)} (id int PRIMARY KEY, {columns})", "places")
    for _ in range(3):
        table = outcome.world.table(name)
        if table is None:
            return
        yield insert_into(make, table)
        first, second = make.random.sample(names, 2)
        item = make.random.choice(
            (
                f"MODIFY {first} int AFTER {second}",
                f"MODIFY {first} int FIRST, MODIFY {second} int AFTER id",
                f"CHANGE {first} {second} int, CHANGE {second} {first} int",
                f"DROP {first}, ADD {first} int AFTER {second}",
                f"ADD {first}x int FIRST, DROP {second}, ADD {second} int",
            )
        )
        outcome = yield make.ddl(f"ALTER TABLE {full(name)} {item}", "places")
    table = outcome.world.table(name)
    if table is not None:
        sets = ", ".join(f"{quoted(c.name)} = {value(c, make.random)}" for c in table.columns if not c.key)
        yield Statement((f"UPDATE {full(name)} SET {sets}",), "places", (name,))
