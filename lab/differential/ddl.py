"""Random DDL on single tables: every form of CREATE, ALTER, RENAME, TRUNCATE and DROP."""

from __future__ import annotations

from lab.differential.forms import Form, Maker, Statement
from lab.differential.world import Table, World, full, quoted


def create(make: Maker, world: World) -> Form:
    """Create a table with two to seven columns, mostly with a primary key."""
    name = make.free_name(world)
    names = list(dict.fromkeys(make.column_name() for _ in range(make.random.randint(2, 7))))
    key = make.random.random()
    columns = [f"{quoted(column)} {make.definition()}" for column in names[1:]]
    first = f"{quoted(names[0])} int" + (" PRIMARY KEY" if key < 0.7 else "")
    columns.insert(0 if make.chance(0.7) else make.random.randint(0, len(columns)), first)
    if key > 0.8:
        columns.append(f"KEY k ({quoted(names[0])})")
    elif key > 0.7:
        columns[columns.index(first)] += " NOT NULL"
        columns.append(f"CONSTRAINT pk PRIMARY KEY USING BTREE ({quoted(names[0])})")
    options = make.random.choice(
        (
            *("", "", "", " ENGINE=InnoDB COMMENT='it''s; x'", " DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"),
            *(" ROW_FORMAT=DYNAMIC", f" PARTITION BY HASH ({quoted(names[0])}) PARTITIONS 2"),
            *((" ENGINE=MyISAM",) if make.dialect.has("rollback_to") else ()),
            *((" DEFAULT CHARSET=latin1", " CHARACTER SET gbk") if make.dialect.has("charsets") else ()),
            *([" WITH SYSTEM VERSIONING"] * 4 if make.dialect.has("versioned") and make.dialect.mariadb else []),
        )
    )
    words = make.random.choice(("CREATE TABLE", "CREATE TABLE", "CREATE TABLE IF NOT EXISTS", "create  table"))
    if make.dialect.mariadb and make.chance(0.1):
        words = "CREATE OR REPLACE TABLE"
    spelled = make.spelled(world, name)
    if make.dialect.has("generated_key") and not make.dialect.mariadb and not make.dialect.old and make.chance(0.2):
        setting = "SET SESSION sql_generate_invisible_primary_key"
        sql = f"{words} {spelled} ({', '.join(columns)}){options}"
        yield Statement((f"{setting} = ON", sql, f"{setting} = OFF"), "CREATE with a generated key")
        return
    yield make.ddl(f"{words} {spelled} ({', '.join(columns)}){options}", "CREATE")


def create_if_present(make: Maker, world: World) -> Form:
    """CREATE TABLE IF NOT EXISTS of a table that exists, with other columns; sometimes CREATE OR REPLACE."""
    table = make.table(world)
    if table is None:
        return
    columns = f"{quoted(make.column_name())} int, {quoted(make.column_name())}_ {make.definition()}"
    if make.dialect.mariadb and make.chance(0.3):
        yield make.ddl(f"CREATE OR REPLACE TABLE {make.spelled(world, table.name)} ({columns})", "CREATE OR REPLACE")
        return
    yield make.ddl(f"CREATE TABLE IF NOT EXISTS {make.spelled(world, table.name)} ({columns})", "CREATE IF NOT EXISTS")


def create_like(make: Maker, world: World) -> Form:
    """CREATE TABLE ... LIKE, in both spellings."""
    table = make.table(world)
    if table is None:
        return
    name, other = make.spelled(world, make.free_name(world)), make.spelled(world, table.name)
    yield make.ddl(f"CREATE TABLE {name} " + make.random.choice((f"LIKE {other}", f"(LIKE {other})")), "CREATE LIKE")


def create_select(make: Maker, world: World) -> Form:
    """CREATE TABLE ... SELECT: its rows are logged with it."""
    table = make.table(world)
    if table is None:
        return
    name = make.free_name(world)
    chosen = make.random.sample(table.columns, make.random.randint(1, len(table.columns)))
    expressions = [
        quoted(column.name) + (f" AS {quoted(make.column_name())}" if make.chance(0.3) else "") for column in chosen
    ]
    if make.chance(0.3):
        expressions.append(f"1 + 1 AS {quoted(make.column_name())}")
    own = make.random.choice(("", "", f" ({quoted(make.column_name())} int)", " (n0 int, n1 varchar(9))"))
    word = make.random.choice(("", " AS", " IGNORE AS", " REPLACE"))
    sql = f"CREATE TABLE {make.spelled(world, name)}{own}{word} SELECT {', '.join(expressions)} FROM {full(table.name)}"
    yield Statement((sql,), "CREATE SELECT", (name,))


def alter(make: Maker, world: World) -> Form:
    """ALTER TABLE of one to four items; a server refuses some of them."""
    table = make.table(world)
    if table is not None:
        items = ", ".join(alter_item(make, table) for _ in range(make.random.choice((1, 1, 1, 2, 2, 3, 4))))
        yield make.ddl(f"{alter_words(make)} {make.spelled(world, table.name)} {items}", "ALTER")


def alter_words(make: Maker) -> str:
    """Return ALTER TABLE in one of its spellings."""
    if make.dialect.mariadb and make.chance(0.15):
        return make.random.choice(("ALTER ONLINE TABLE", "ALTER IGNORE TABLE", "ALTER TABLE IF EXISTS"))
    return "ALTER TABLE"


def alter_item(make: Maker, table: Table) -> str:
    """Return one item of ALTER TABLE."""
    random = make.random
    column, other = random.choice(table.columns), random.choice(table.columns)
    old, new = make.reference(column), quoted(make.column_name())
    same = column.definition + ("" if column.nullable else " NOT NULL")
    place = random.choice(("", " FIRST", f" AFTER {make.reference(other)}", f" AFTER {make.reference(other)}"))
    kind = make.definition(others=table.columns)
    exists = make.dialect.mariadb and make.chance(0.2)
    absent = " IF NOT EXISTS" if exists else ""
    present = " IF EXISTS" if exists else ""
    items = [
        *[f"ADD COLUMN{absent} {new} {kind}{place}"] * 4,
        f"ADD {new} {kind}{place}",
        f"ADD ({new} {kind}, {quoted(make.column_name())} int)",
        *[f"DROP COLUMN{present} {old}"] * 2,
        f"DROP {old}, ADD {old} {kind}{place}",
        *[f"MODIFY COLUMN {old} {same}{place}"] * 4,
        f"MODIFY{present} {old} {kind}{place}",
        *[f"CHANGE COLUMN {old} {new} {same}{place}"] * 4,
        f"CHANGE{present} {old} {new} {kind}{place}",
        f"CHANGE {old} {make.reference(other)} {same}, CHANGE {make.reference(other)} {old} {other.definition}",
        f"RENAME COLUMN {old} TO {new}",
        f"RENAME COLUMN {old} TO {make.reference(other)}, RENAME COLUMN {make.reference(other)} TO {old}",
        f"ADD INDEX ({old})",
        f"DROP PRIMARY KEY, ADD PRIMARY KEY ({old})",
        "DROP PRIMARY KEY",
        f"ALTER COLUMN {old} SET DEFAULT 1",
        f"ALTER {old} DROP DEFAULT",
        "COMMENT = 'y, ADD z int'",
        "ENGINE = InnoDB",
        "FORCE",
        f"ORDER BY {old}",
        f"RENAME TO {full((table.name[0], table.name[1] + 'r'))}",
    ]
    if not make.dialect.old:
        items += [f"ADD COLUMN {new} int{place}, ALGORITHM=INSTANT"] * 2
        items.append(f"DROP COLUMN {old}, ALGORITHM=INSTANT")
    if not make.dialect.old and not make.dialect.mariadb:
        items += [f"ALTER COLUMN {old} SET {random.choice(('VISIBLE', 'INVISIBLE'))}"] * 2
    if make.dialect.has("charsets"):
        items.append(f"CONVERT TO CHARACTER SET {random.choice(('utf8mb4', 'latin1', 'gbk'))}")
    if make.dialect.has("versioned") and make.dialect.mariadb:
        items += ["ADD SYSTEM VERSIONING", "DROP SYSTEM VERSIONING"]
    return random.choice(items)


def unlogged(make: Maker, world: World) -> Form:
    """DROP COLUMN that the binlog does not contain: only the number of columns gives it away."""
    table = make.table(world)
    if table is not None and make.dialect.has("unlogged"):
        sql = f"ALTER TABLE {full(table.name)} DROP COLUMN {quoted(make.random.choice(table.columns).name)}"
        yield Statement(("SET SESSION sql_log_bin = 0", sql, "SET SESSION sql_log_bin = 1"), "unlogged ALTER")


def index(make: Maker, world: World) -> Form:
    """CREATE INDEX and DROP INDEX, which change no column."""
    table = make.table(world)
    if table is None:
        return
    column = quoted(make.random.choice(table.columns).name)
    spelled = make.spelled(world, table.name)
    yield make.ddl(f"CREATE INDEX extra ON {spelled} ({column})", "INDEX")
    yield make.ddl(f"DROP INDEX extra ON {spelled}", "INDEX")


def rename(make: Maker, world: World) -> Form:
    """RENAME TABLE: one table, two that swap, or a chain."""
    table, other = make.table(world), make.table(world)
    if table is None or other is None:
        return
    free = make.free_name(world)
    one, two, new = (make.spelled(world, name) for name in (table.name, other.name, free))
    if table == other or make.chance(0.4):
        yield make.ddl(f"RENAME TABLE {one} TO {new}", "RENAME")
    elif make.chance(0.7):
        yield make.ddl(f"RENAME TABLE {one} TO {new}, {two} TO {one}, {new} TO {two}", "RENAME, swap")
    else:
        gone = full((free[0], f"{free[1]}z"))
        yield make.ddl(f"RENAME TABLE {one} TO {gone}, {two} TO {new}, {new} TO {one}, {gone} TO {two}", "RENAME chain")


def alter_rename(make: Maker, world: World) -> Form:
    """ALTER TABLE ... RENAME, with another change in the same statement."""
    table = make.table(world)
    if table is None:
        return
    word = make.random.choice(("RENAME", "RENAME TO", "RENAME AS"))
    item = f", {alter_item(make, table)}" if make.chance(0.6) else ""
    new = make.spelled(world, make.free_name(world))
    yield make.ddl(f"ALTER TABLE {make.spelled(world, table.name)} {word} {new}{item}", "ALTER RENAME")


def truncate(make: Maker, world: World) -> Form:
    """TRUNCATE TABLE, which logs no rows."""
    table = make.table(world)
    if table is not None:
        word = make.random.choice(("TRUNCATE", "TRUNCATE TABLE"))
        yield make.ddl(f"{word} {make.spelled(world, table.name)}", "TRUNCATE")


def drop(make: Maker, world: World) -> Form:
    """DROP TABLE of one or two tables, and often CREATE of other columns under the same name."""
    table, other = make.table(world), make.table(world)
    if table is None or other is None or len(world.tables) < 3:
        return
    names = [make.spelled(world, table.name)] + ([make.spelled(world, other.name)] if make.chance(0.3) else [])
    exists = make.random.choice(("", " IF EXISTS"))
    yield make.ddl(f"DROP TABLE{exists} {', '.join(names)}", "DROP")
    if make.chance(0.5):
        columns = ", ".join(f"n{number} {make.definition()}" for number in range(make.random.randint(1, 4)))
        yield make.ddl(f"CREATE TABLE {names[0]} (id int PRIMARY KEY, {columns})", "CREATE under an old name")
