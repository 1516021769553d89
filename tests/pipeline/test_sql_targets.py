"""What the targets for PostgreSQL, MySQL and MariaDB have in common, on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from canal_ha.client.arrow import TableBatch
from canal_ha.errors import OptionInvalid, SinkRefused, TargetUnavailable
from canal_ha.pipeline.targets.target import OwnedTables
from lab import MariaDB, MySQL, Node, SqlServer, follow
from lab.postgresql import OWNER, PostgreSQL
from tests.pipeline.histories import History, shown
from tests.pipeline.made import Writer
from tests.pipeline.sourced import NOTHING, Sourced
from tests.pipeline.sql_copies import KINDS, SqlCopies

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSQL]:
    """Yield one server for the module."""
    with PostgreSQL() as server:
        yield server


@pytest.fixture(scope="module")
def node(mysql: MySQL, mariadb: MariaDB) -> Iterator[Node]:
    """Yield a node that reads both databases."""
    with Node({"mysql": follow(mysql), "mariadb": follow(mariadb)}) as node:
        yield node


@pytest.fixture(params=KINDS)
def copies(request: pytest.FixtureRequest, database: str) -> SqlCopies:
    """Return the copies on each server."""
    return SqlCopies(request.getfixturevalue(request.param), database)


@pytest.fixture
def source(copies: SqlCopies, node: Node, mysql: MySQL, mariadb: MariaDB) -> Iterator[Sourced]:
    """Yield a source database on a server of another kind than the copies'."""
    server: SqlServer = mariadb if copies.server is mysql else mysql
    with Sourced(server, copies.database, node, server.flavor) as source:
        copies.target.commit(source.first())
        yield source


def equal(source: Sourced, copies: SqlCopies, order: str = "id", table: str = "t") -> None:
    """Compare source and copy row by row."""
    assert copies.rows(table, order=order) == source.query(f"SELECT * FROM {table} ORDER BY {order}")


def test_changes_arrive(source: Sourced, copies: SqlCopies) -> None:
    """Inserted, updated and deleted rows, and changed keys, in one portion and in several."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), n INT)")
    source.execute("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, NULL, NULL)")
    copies.target.commit(source.portion())
    equal(source, copies)
    source.execute("UPDATE t SET n = n + 10", "DELETE FROM t WHERE id = 2", "UPDATE t SET id = 9 WHERE id = 1")
    source.execute("INSERT INTO t VALUES (2, 'back', 0), (7, '', 7)", "DELETE FROM t WHERE id = 7")
    copies.target.commit(source.portion())
    equal(source, copies)
    source.execute("TRUNCATE t", "INSERT INTO t VALUES (5, 'e', 5)")
    copies.target.commit(source.portion())
    equal(source, copies)
    source.execute("DROP TABLE t", "CREATE TABLE t (id VARCHAR(5), x DATE, PRIMARY KEY (id))")
    source.execute("INSERT INTO t VALUES ('a', '2024-01-01')")
    copies.target.commit(source.portion())
    equal(source, copies)
    assert copies.target.progress(source.destination) == source.progress


@pytest.mark.parametrize("together", [True, False])
def test_columns_follow_those_of_the_source(source: Sourced, copies: SqlCopies, together: bool) -> None:
    """Columns are added with their default, renamed, widened and dropped; rows before and behind a statement fit."""

    def commit(*statements: str) -> None:
        source.execute(*statements)
        if not together:
            copies.target.commit(source.portion())
            equal(source, copies)

    source.execute("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(3), n SMALLINT)")
    source.execute("INSERT INTO t VALUES (1, 'abc', 1), (2, 'def', 2)")
    copies.target.commit(source.portion())
    commit("INSERT INTO t VALUES (3, 'ghi', 3)", "ALTER TABLE t ADD note VARCHAR(20) NOT NULL DEFAULT 'it''s %s \\\\n'")
    commit("INSERT INTO t VALUES (4, 'x', 4, 'own')", "UPDATE t SET n = 5 WHERE id = 1")
    commit("ALTER TABLE t CHANGE name label VARCHAR(30)", "INSERT INTO t VALUES (5, 'longer than three', 5, '')")
    commit("ALTER TABLE t MODIFY n BIGINT", "UPDATE t SET n = 5000000000 WHERE id = 2")
    commit("ALTER TABLE t RENAME COLUMN note TO remark", "UPDATE t SET remark = 'new' WHERE id = 3")
    commit(
        "ALTER TABLE t ADD b BLOB, ADD d DECIMAL(5,2) DEFAULT 1.50, ADD at DATETIME(3) DEFAULT '2024-01-02 03:04:05'"
    )
    commit("UPDATE t SET b = x'00ff' WHERE id = 4", "ALTER TABLE t DROP label", "DELETE FROM t WHERE id = 5")
    commit("ALTER TABLE t ADD label INT", "UPDATE t SET label = 7 WHERE id = 4")
    commit("ALTER TABLE t DROP b")
    if together:
        copies.target.commit(source.portion())
    equal(source, copies)


SWAPS = (
    "RENAME COLUMN a TO b, RENAME COLUMN b TO a",
    "CHANGE a b INT, CHANGE b a INT",
    "RENAME COLUMN a TO b, RENAME COLUMN b TO c, RENAME COLUMN c TO a",
    "RENAME COLUMN a TO b, DROP COLUMN b",
    "DROP COLUMN b, CHANGE a b BIGINT, ADD d INT DEFAULT 7",
    "RENAME COLUMN a TO b, RENAME COLUMN b TO e",
)


def test_a_copy_had_another_key_behind_a_portion_that_ended_at_a_new_name_of_it(
    source: Sourced, copies: SqlCopies
) -> None:
    """The last column became the key, so the statement was refused, or rows were not found."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 7), (2, 7)")
    copies.target.commit(source.portion())
    source.execute("UPDATE t SET v = 8 WHERE id = 1", "INSERT INTO t VALUES (3, 7)", "ALTER TABLE t CHANGE id k INT")
    copies.target.commit(source.portion())
    equal(source, copies, "k")
    source.execute("UPDATE t SET v = 9 WHERE k = 1")
    copies.target.commit(source.portion())
    equal(source, copies, "k")
    assert copies.keys() == {"k"}


@pytest.mark.parametrize("apart", [False, True])
def test_columns_whose_names_change_places_keep_their_values(source: Sourced, copies: SqlCopies, apart: bool) -> None:
    """In one statement; also the values of rows that come before it in its portion."""
    for at, swap in enumerate(SWAPS):
        source.execute(f"CREATE TABLE t{at} (id INT PRIMARY KEY, a INT, b INT, c INT)")
        source.execute(f"INSERT INTO t{at} VALUES (1, 10, 20, 30), (2, 11, 21, 31)")
        copies.target.commit(source.portion())
        source.execute(f"INSERT INTO t{at} VALUES (3, 12, 22, 32)", f"ALTER TABLE t{at} {swap}")
        if apart:
            copies.target.commit(source.portion())
        source.execute(f"UPDATE t{at} SET b = 0 WHERE id = 2")
        copies.target.commit(source.portion())
        names = ", ".join(sorted(source.query(f"SELECT * FROM t{at}")[0]))
        assert copies.rows(f"t{at}", names) == source.query(f"SELECT {names} FROM t{at} ORDER BY id"), swap


def test_a_key_that_is_redefined_is_the_copys_too(source: Sourced, copies: SqlCopies) -> None:
    """Rows deleted by the old key, and updated behind the statement, are right."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, g INT NOT NULL, v INT)")
    source.execute("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)")
    copies.target.commit(source.portion())
    source.execute("DELETE FROM t WHERE id = 1", "UPDATE t SET g = 5, v = 20 WHERE id = 2")
    source.execute("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, g)")
    source.execute("INSERT INTO t VALUES (3, 4, 34)", "UPDATE t SET v = 30 WHERE id = 3 AND g = 3")
    copies.target.commit(source.portion())
    equal(source, copies, "id, g")
    assert copies.keys() == {"id", "g"}


@pytest.mark.parametrize("mode", ["mirror", "scd2"])
def test_null_in_a_key_column_says_what_to_do(source: Sourced, copies: SqlCopies, mode: str) -> None:
    """A unique key of the source can have NULL in many rows, a primary key of the copy in none."""
    target = copies.open(mode, keys={f"{source.database}.t": ("a", "b")})
    source.execute("CREATE TABLE t (a INT, b INT, v INT, UNIQUE (a, b))", "INSERT INTO t VALUES (1, 2, 3)")
    target.commit(source.portion())
    source.execute("INSERT INTO t VALUES (1, NULL, 4), (1, NULL, 5)")
    with pytest.raises(SinkRefused, match=r"\.t\.b, a column of the key, is NULL in a row.*under keys"):
        target.commit(source.portion())
    assert [row["v"] for row in copies.rows(order="v")] == [3]


def test_policies_for_changed_columns(source: Sourced, copies: SqlCopies) -> None:
    """`stop` refuses and names the column; `ignore` writes the columns that the copy has."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(9))", "INSERT INTO t VALUES (1, 'a')")
    copies.target.commit(source.portion())
    source.execute("ALTER TABLE t ADD more INT DEFAULT 3", "INSERT INTO t VALUES (2, 'b', 4)")
    portion = source.portion()
    with pytest.raises(SinkRefused, match=rf"columns of {source.database}\.t .*'more'.*evolve is stop"):
        copies.open(evolve="stop").commit(portion)
    copies.open(evolve="ignore").commit(portion)
    assert copies.rows() == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    source.execute("ALTER TABLE t DROP name", "INSERT INTO t VALUES (3, 5)")
    copies.open(evolve="ignore").commit(source.portion())
    assert copies.rows() == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": None}]


def test_a_column_that_no_statement_dropped_keeps_its_values(source: Sourced, copies: SqlCopies) -> None:
    """Rows without the column are refused, and nothing is written. A table that is created anew may lack it."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 10)")
    copies.target.commit(source.portion())
    source.execute("ALTER TABLE t RENAME COLUMN a TO b")
    source.frames()
    source.reader = source.new_reader()
    source.execute("INSERT INTO t VALUES (2, 20)")
    before, portion = source.progress, source.portion()
    with pytest.raises(SinkRefused, match="lack the column 'a' of the copy, and no statement dropped it"):
        copies.target.commit(portion)
    assert copies.rows() == [{"id": 1, "a": 10}]
    source.progress = before
    source.execute("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY)")
    copies.target.commit(source.portion())
    source.execute("INSERT INTO t VALUES (3)")
    copies.target.commit(source.portion())
    equal(source, copies)


def test_an_old_process_cannot_commit_behind_a_newer_one(source: Sourced, copies: SqlCopies) -> None:
    """A commit that is there already is left out; any other that does not follow is refused and writes nothing."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    first = source.portion()
    copies.target.commit(first)
    copies.target.commit(first)
    source.execute("INSERT INTO t VALUES (2)")
    second = source.portion()
    old, new = copies.open(), copies.open()
    assert old.progress(source.destination) == new.progress(source.destination) == first.progress
    new.commit(second)
    source.execute("INSERT INTO t VALUES (3)")
    third = source.portion()
    wrong = [
        replace(second.progress, last=replace(NOTHING, offset=77)),
        replace(second.progress, run="stranger"),
        replace(third.progress, run="stranger"),
        replace(second.progress, run="stranger", seq=0),
        replace(third.progress, seq=third.progress.seq + 1),
    ]
    for progress in wrong:
        with pytest.raises(SinkRefused, match="another process of this pipeline has gone on"):
            old.commit(replace(third, progress=progress))
    with pytest.raises(SinkRefused, match="the target is at no commit"):
        old.commit(replace(third, destination="elsewhere"))
    assert [row["id"] for row in copies.rows()] == [1, 2]
    assert new.progress(source.destination) == second.progress
    assert new.progress("elsewhere") is None
    begun = replace(second.progress, run="stranger")
    new.commit(replace(third, frames=b"", progress=begun))
    with pytest.raises(SinkRefused, match="pipeline stranger commit"):
        old.commit(third)
    new.commit(replace(third, progress=replace(third.progress, run="stranger")))
    equal(source, copies)


@pytest.mark.parametrize("missing", [True, False], ids=["missing", "there"])
def test_a_check_passed_an_account_that_can_write_its_state_alone(copies: SqlCopies, missing: bool) -> None:
    """It was said at the first commit. A place that a pattern leaves open is not asked for."""
    user, server = f"u_{copies.database}", copies.server
    if isinstance(server, PostgreSQL):
        server.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'w'", f"CREATE SCHEMA {copies.state} AUTHORIZATION {user}")
        grant = f"GRANT CREATE ON DATABASE postgres TO {user}"
        if not missing:
            server.execute(f"CREATE SCHEMA {copies.place}", f"GRANT USAGE ON SCHEMA {copies.place} TO {user}")
            grant = f"GRANT CREATE ON SCHEMA {copies.place} TO {user}"
    else:
        server.execute(f"CREATE USER {user}@'%' IDENTIFIED BY 'w'", f"GRANT ALL ON {copies.state}.* TO {user}@'%'")
        grant = f"GRANT INSERT ON {copies.place}.* TO {user}@'%'"
        if not missing:
            server.execute(f"CREATE DATABASE {copies.place}")
    login = {"user": user, "password": "w"}
    with pytest.raises(SinkRefused, match=rf"{user} .*{copies.place}, where copies would be: grant it"):
        copies.open(**login).check()
    place = "schemas" if copies.is_postgresql else "databases"
    assert copies.open(**login, **{place: ["copy_*"]}).check()
    server.execute(grant)
    assert copies.open(**login).check()


def test_a_check_passed_an_account_that_can_only_read_copies(copies: SqlCopies) -> None:
    """Rights on single tables are enough, because other copies need none."""
    if copies.is_postgresql:
        pytest.skip("the check asks PostgreSQL for the right to create tables")
    user, server = f"u_{copies.database}", copies.server
    server.execute(
        f"CREATE USER {user}@'%' IDENTIFIED BY 'w'",
        f"GRANT ALL ON {copies.state}.* TO {user}@'%'",
        f"CREATE DATABASE {copies.place}",
        f"CREATE TABLE {copies.place}.a (id INT PRIMARY KEY)",
        f"CREATE TABLE {copies.place}.`{'{b}'}%` (id INT PRIMARY KEY)",
        f"INSERT INTO {copies.place}.a VALUES (1)",
        f"GRANT SELECT ON {copies.place}.* TO {user}@'%'",
    )
    target = copies.open(user=user, password="w")
    with pytest.raises(
        SinkRefused, match=rf"{user} may not write into the database {copies.place}, where copies .*: grant"
    ):
        target.check()
    server.execute(f"GRANT INSERT ON {copies.place}.`{'{b}'}%` TO {user}@'%'")
    assert target.check()
    assert [row["id"] for row in server.query(f"SELECT id FROM {copies.place}.a")] == [1]


def test_looking_at_the_progress_creates_nothing(source: Sourced, copies: SqlCopies) -> None:
    """Without the tables of the state there is none."""
    assert copies.target.stored(source.destination) == source.progress
    assert copies.target.stored("elsewhere") is None
    unused = f"unused_{copies.state}"
    looking = copies.open(**{"stateSchema" if copies.is_postgresql else "stateDatabase": unused})
    assert looking.stored(source.destination) is None
    found = copies.query(f"SELECT 1 AS found FROM information_schema.schemata WHERE schema_name = '{unused}'")
    assert not found


def test_a_log_has_every_change_once_in_order(source: Sourced, copies: SqlCopies) -> None:
    """Changes and statements are rows; a column that is dropped at the source stays."""
    log = copies.open(mode="changelog")
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(9))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    source.execute("UPDATE t SET name = 'c' WHERE id = 1", "UPDATE t SET id = 5 WHERE id = 2")
    first = source.portion()
    log.commit(first)
    log.commit(first)
    source.execute(
        "ALTER TABLE t DROP name, ADD n BIGINT", "INSERT INTO t VALUES (7, 70)", "DELETE FROM t WHERE id = 1"
    )
    log.commit(source.portion())
    rows = copies.rows(order="_commit, _entry, _row")
    assert [(row["_op"], row["id"], row["name"], row["n"]) for row in rows] == [
        ("ddl", None, None, None),
        ("insert", 1, "a", None),
        ("insert", 2, "b", None),
        ("update", 1, "c", None),
        ("delete", 2, "b", None),
        ("insert", 5, "b", None),
        ("ddl", None, None, None),
        ("insert", 7, None, 70),
        ("delete", 1, None, None),
    ]
    assert rows[0]["_ddl"].startswith("CREATE TABLE t")
    assert all(row["_journal"] and row["_offset"] and row["_ts"] for row in rows)


LONG = "字" * 64
HOSTILE = (
    "../../x",
    'a"b',
    "c`d",
    "e'f; DROP TABLE g",
    "%s%(x)s",
    "h.i",
    "\\",
    "字" * 40,
    "SELECT",
    "UPPER",
    "upper ü",
)


@pytest.mark.parametrize("name", ["_op", "_RUN"])
def test_a_column_with_a_name_of_a_changelog_is_named(source: Sourced, copies: SqlCopies, name: str) -> None:
    """The server's own error would say that a column is there twice."""
    source.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {name} INT)", "INSERT INTO t VALUES (1, 1)")
    with pytest.raises(
        SinkRefused, match=rf"\.t has a column {name}, which a changelog needs for itself: give it another"
    ):
        copies.open("changelog").commit(source.portion())


def test_hostile_names_are_only_names(source: Sourced, copies: SqlCopies) -> None:
    """Of schemas, tables and columns: quotes, paths, placeholders, long ones, and some that differ in case."""
    quoted = {name: "`" + name.replace("`", "``") + "`" for name in HOSTILE}
    for at, name in enumerate(quoted.values()):
        source.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, {name} VARCHAR(9))")
        source.execute(f"INSERT INTO {name} VALUES ({at}, 'x'), (100, 'gone')", f"DELETE FROM {name} WHERE id = 100")
    path = quoted["../../x"]
    source.execute(f"ALTER TABLE {path} RENAME COLUMN {path} TO `{LONG}`", f"UPDATE {path} SET id = 50")
    copies.target.commit(source.portion())
    for at, name in enumerate(HOSTILE):
        [row] = copies.rows(copies.shown(name))
        column, key = (LONG, 50) if name == "../../x" else (name, at)
        assert row == {"id": key, copies.shown(column): "x"}


def test_the_source_cannot_choose_a_place_of_the_servers_own(source: Sourced, copies: SqlCopies) -> None:
    """Nor one that the pipeline does not name, nor that of the state."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    portion = source.portion()
    noun = "schema" if copies.is_postgresql else "database"
    own = "pg_catalog" if copies.is_postgresql else "mysql"
    for name, why in ((own, "belongs to the server"), (copies.state, "holds the pipeline's own state")):
        with pytest.raises(OptionInvalid, match=why):
            copies.open(**{noun: name, f"{noun}s": ["*"]})
    with pytest.raises(OptionInvalid, match=f"the source would choose the {noun}s"):
        copies.open(**{noun: "{schema}", "tables": ("*",)})
    with pytest.raises(SinkRefused, match=f"not among the {noun}s"):
        copies.open(**{noun: "{schema}", f"{noun}s": ["other", "copy_*"]}).commit(portion)
    information = replace(portion, reader=renamed(source, "information_schema"))
    with pytest.raises(SinkRefused, match="belongs to the server"):
        copies.open(**{noun: "{schema}", f"{noun}s": ["*"]}).commit(information)


def renamed(source: Sourced, schema: str) -> Any:
    """Return a reader that finds the source's rows in another schema."""
    reader = source.new_reader()
    batches = reader.batches

    def found(frames: bytes, *, dates_as_text: bool = False) -> Iterator[TableBatch]:
        return (replace(each, schema=schema) for each in batches(frames, dates_as_text=dates_as_text))

    reader.batches = found  # type: ignore[method-assign]  # a transform does the same
    return reader


def test_two_tables_do_not_meet_in_one(source: Sourced, copies: SqlCopies) -> None:
    """The rows of one would replace those of the other; the second is refused."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    portion = source.portion()
    copies.target.commit(portion)
    elsewhere = copies.open()
    elsewhere.commit(replace(source.first(), destination="other"))
    with pytest.raises(SinkRefused, match=r"which has the rows of .*\.t of destination "):
        elsewhere.commit(replace(portion, destination="other"))
    assert elsewhere.progress("other") == source.first().progress


@pytest.mark.parametrize("mode", ["mirror", "scd2", "changelog"])
def test_a_table_with_rows_that_no_pipeline_wrote_is_refused(source: Sourced, copies: SqlCopies, mode: str) -> None:
    """They would stay, and a TRUNCATE would delete them. The error has the statement that allows it."""
    place, table = copies.name(copies.place), copies.table("t")
    copies.server.execute(f"CREATE {'SCHEMA' if copies.is_postgresql else 'DATABASE'} {place}")
    copies.server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT)", f"INSERT INTO {table} VALUES (7, 7)")
    if copies.is_postgresql:
        copies.server.execute(f"ALTER SCHEMA {place} OWNER TO {OWNER}", f"ALTER TABLE {table} OWNER TO {OWNER}")
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 1)")
    target, portion = copies.open(mode), source.portion()
    with pytest.raises(SinkRefused, match="exists and has rows that no pipeline wrote") as refused:
        target.commit(portion)
    assert copies.rows() == [{"id": 7, "n": 7}]
    assert isinstance(target, OwnedTables)
    with pytest.raises(SinkRefused, match="exists and has rows that no pipeline wrote"):
        target.check_table(source.destination, source.database, "t", merges=False)
    if mode == "mirror":
        copies.server.execute(str(refused.value).rpartition("these rows: ")[2])
        target.check_table(portion.destination, source.database, "t", merges=False)
        target.commit(portion)
        assert copies.rows() == [{"id": 1, "n": 1}]  # CREATE TABLE has emptied it


def test_keys_that_differ_in_case_accent_or_trailing_blanks_stay_apart(source: Sourced, copies: SqlCopies) -> None:
    """The collation of the copy's key is binary."""
    texts = ["e", "é", "x", "X", "x ", "ß", "ss", "", " "]
    source.execute("CREATE TABLE t (id VARCHAR(9) COLLATE utf8mb4_bin, n INT, PRIMARY KEY (id))")
    if source.server.flavor == "mysql":
        source.execute("ALTER TABLE t MODIFY id VARCHAR(9) COLLATE utf8mb4_0900_bin")
    else:
        source.execute("ALTER TABLE t MODIFY id VARCHAR(9) COLLATE utf8mb4_nopad_bin")
    source.execute(*(f"INSERT INTO t VALUES ('{text}', {at})" for at, text in enumerate(texts)))
    copies.target.commit(source.portion())
    assert {row["id"]: row["n"] for row in copies.rows()} == {text: at for at, text in enumerate(texts)}
    source.execute(
        "DELETE FROM t WHERE id = 'X'", "UPDATE t SET n = 50 WHERE id = 'é'", "DELETE FROM t WHERE id = 'x '"
    )
    copies.target.commit(source.portion())
    assert {row["id"]: row["n"] for row in copies.rows()} == {
        row["id"]: row["n"] for row in source.query("SELECT * FROM t")
    }


def test_a_value_that_does_not_fit_names_table_and_column(source: Sourced, copies: SqlCopies) -> None:
    """Nothing of the portion is written."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, n TINYINT)", "INSERT INTO t VALUES (1, 1)")
    copies.target.commit(source.portion())
    source.execute("ALTER TABLE t MODIFY n BIGINT", "INSERT INTO t VALUES (2, 5000000000)")
    with pytest.raises(SinkRefused, match=rf"{source.database}\.t.*\bn\b"):
        copies.open(evolve="ignore").commit(source.portion())
    assert [row["id"] for row in copies.rows()] == [1]


def test_a_truncate_in_an_executable_comment_left_the_rows_in_a_copy(source: Sourced, copies: SqlCopies) -> None:
    """The node made no entry of it, as canal makes none, so no copy was emptied."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    copies.target.commit(source.portion())
    source.execute("/*!50000 TRUNCATE TABLE t */", "INSERT INTO t VALUES (2)")
    copies.target.commit(source.portion())
    assert [row["id"] for row in copies.rows()] == [2]


def test_a_lock_of_another_session_passes(source: Sourced, copies: SqlCopies) -> None:
    """The error can be tried again, and the same portion is written then."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    copies.target.commit(source.portion())
    source.execute("INSERT INTO t VALUES (2)")
    portion = source.portion()
    state = f"{copies.state}.progress"
    set_timeout(copies, 1)
    connection: Any = copies.server.connect(autocommit=False)
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {state} FOR UPDATE")
        target = copies.open()
        with pytest.raises(TargetUnavailable, match=r"(?i)lock"):
            target.commit(portion)
    finally:
        connection.close()
        set_timeout(copies, 50)
    target.commit(portion)
    equal(source, copies)


def set_timeout(copies: SqlCopies, seconds: int) -> None:
    """Set how long the server's sessions wait for a lock; PostgreSQL's own time-out is set for the account."""
    if copies.is_postgresql:
        from canal_ha.pipeline.targets import postgresql

        postgresql._SESSION = postgresql._SESSION.replace("lock_timeout = '60s'", f"lock_timeout = '{seconds}s'")
    else:
        copies.server.execute(f"SET GLOBAL innodb_lock_wait_timeout = {seconds}")


def test_a_history_equals_that_of_single_changes(copies: SqlCopies) -> None:
    """Every version of each row, with statements, snapshots and several changes of a key in a portion."""
    random, history = Random(1), History(copies.database)
    history.grow(random, 80)
    writer = Writer(copies.open("scd2"))
    while (done := writer.progress.last.offset) < len(history.entries):
        until = min(done + random.randint(1, 25), len(history.entries))
        writer.commit(*history.entries[done:until], offset=until)
    assert shown(copies.rows("t")) == history.shown()
    assert copies.keys("t") == {"id", "valid_from", "valid_position"}


def test_a_history_follows_a_table_that_changes(source: Sourced, copies: SqlCopies) -> None:
    """New and wider columns, another key, TRUNCATE, and a table that is dropped and created; old versions stay."""
    target = copies.open("scd2")

    def current(columns: str) -> list[dict[str, Any]]:
        return copies.query(f"SELECT {columns} FROM {copies.table('t')} WHERE is_current ORDER BY id, region")

    source.execute("CREATE TABLE t (id INT PRIMARY KEY, region CHAR(2) NOT NULL, n SMALLINT)")
    source.execute("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    target.commit(source.portion())
    source.execute("ALTER TABLE t ADD note VARCHAR(9) NOT NULL DEFAULT 'x', MODIFY n BIGINT")
    source.execute("UPDATE t SET n = 5000000000 WHERE id = 1")
    source.execute("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, region)")
    source.execute("INSERT INTO t VALUES (1, 'b', 7, 'y')")
    source.execute("UPDATE t SET region = 'c' WHERE id = 2")
    target.commit(source.portion())
    assert current("id, region, n, note") == source.query("SELECT * FROM t ORDER BY id, region")
    assert copies.keys("t") == {"id", "region", "valid_from", "valid_position"}
    source.execute("TRUNCATE TABLE t")
    source.execute("INSERT INTO t VALUES (1, 'a', 9, 'z')")
    source.execute("ALTER TABLE t RENAME COLUMN note TO remark")
    source.execute("UPDATE t SET remark = 'w'")
    target.commit(source.portion())
    assert current("id, region, n, remark") == source.query("SELECT * FROM t")
    found = copies.rows("t", order="id, valid_position")
    assert [(row["region"].strip(), row["n"], row["remark"]) for row in found if row["id"] == 1] == [
        ("a", 1, "x"),
        ("a", 5000000000, "x"),
        ("b", 7, "y"),
        ("a", 9, "z"),
        ("a", 9, "w"),
    ]
    assert [bool(row["is_current"]) for row in found if row["id"] == 1] == [False] * 4 + [True]


def test_a_history_has_any_name_of_a_table(source: Sourced, copies: SqlCopies) -> None:
    """TRUNCATE ends the versions of its own table, not those of one whose name looks like it in a format."""
    target, names = copies.open("scd2"), ("x%y", "x%%y", "a{b", "{}")
    for name in names:
        source.execute(f"CREATE TABLE `{name}` (id INT PRIMARY KEY)", f"INSERT INTO `{name}` VALUES (1), (2), (3)")
        source.execute(f"DELETE FROM `{name}` WHERE id = 1", f"UPDATE `{name}` SET id = 4 WHERE id = 2")
    target.commit(source.portion())
    source.execute("TRUNCATE TABLE `x%%y`", "TRUNCATE TABLE `{}`")
    target.commit(source.portion())
    found = {name: [row["id"] for row in copies.rows(copies.shown(name)) if row["is_current"]] for name in names}
    assert found == {"x%y": [3, 4], "x%%y": [], "a{b": [3, 4], "{}": []}
    source.execute("TRUNCATE TABLE `x%y`", "TRUNCATE TABLE `a{b`")
    target.commit(source.portion())
    assert not any(row["is_current"] for name in names for row in copies.rows(copies.shown(name)))


@pytest.mark.parametrize(
    "swap", ["DROP COLUMN a; RENAME COLUMN b TO a", "DROP COLUMN a, RENAME COLUMN b TO a", "DROP a; CHANGE b a BIGINT"]
)
@pytest.mark.parametrize("apart", [False, True])
def test_a_history_keeps_a_dropped_column_whose_name_is_used_again(
    source: Sourced, copies: SqlCopies, swap: str, apart: bool
) -> None:
    """It is put aside, whether the statements are in a portion of their own or with rows before and behind them."""
    target = copies.open("scd2")
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b BIGINT)", "INSERT INTO t VALUES (1, 1, 10), (2, 2, 20)"
    )
    target.commit(source.portion())
    source.execute("INSERT INTO t VALUES (3, 3, 30)")
    for items in swap.split("; "):
        source.execute(f"ALTER TABLE t {items}")
        if apart:
            target.commit(source.portion())
    source.execute("UPDATE t SET a = 11 WHERE id = 1")
    target.commit(source.portion())
    found = copies.query(f"SELECT id, a, a_old, is_current FROM {copies.table('t')} ORDER BY id, valid_position")
    assert [(row["id"], row["a"], row["a_old"], bool(row["is_current"])) for row in found] == [
        (1, 10, 1, False),
        (1, 11, None, True),
        (2, 20, 2, True),
        (3, 30, 3, True),
    ]


def test_a_history_goes_on_when_a_dropped_column_comes_back_as_text(source: Sourced, copies: SqlCopies) -> None:
    """Older versions keep their values."""
    target = copies.open("scd2")
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 7)")
    target.commit(source.portion())
    source.execute("ALTER TABLE t DROP a", "ALTER TABLE t ADD a VARCHAR(9)", "UPDATE t SET a = 'x'")
    target.commit(source.portion())
    assert [row["a"] for row in copies.rows("t", order="valid_position")] == ["7", "x"]
