"""Transforms, on entries as a server sends them: batches and rows get the same values."""

from __future__ import annotations

import hmac
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from canal_ha.client.arrow import META, TableBatch
from canal_ha.client.message import parse
from canal_ha.client.rows import Row, row_change, rows_of
from canal_ha.decode.privacy import Privacy
from canal_ha.errors import OptionInvalid, SinkRefused
from canal_ha.pipeline.latest import latest
from canal_ha.pipeline.messages.canal_json import CanalJson
from canal_ha.pipeline.messages.debezium_json import DebeziumJson
from canal_ha.pipeline.messages.queue_message import MessageOrigin
from canal_ha.pipeline.messages.routing import Placement
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.reading import KEY, TYPE, ChangeReader
from canal_ha.wire.proto.canal_protocol_pb2 import Messages
from tests.pipeline.given import portion
from tests.spark import entries as made

ID, NAME = made.ID, made.NAME
MAIL: made.ColumnSpec = ("mail", "varchar(60)", 12, False)
PRICE: made.ColumnSpec = ("price", "decimal(10,2)", -1, False)
Given = Sequence[Mapping[str, Any]]


def everything(schema: str, table: str) -> bool:
    """Take all tables."""
    return True


def reader(*transforms: Mapping[str, Any], takes: Callable[[str, str], bool] = everything, **more: Any) -> ChangeReader:
    """Return a reader with these transforms."""
    return ChangeReader(takes, transforms=transforms, **more)


def inserted(columns: Sequence[made.ColumnSpec], *values: str | None, table: str = "t", offset: int = 1) -> bytes:
    """Return an entry with one row."""
    names = [column[0] for column in columns]
    return made.rows(offset, "INSERT", [(None, dict(zip(names, values, strict=True)))], columns, table=table)


def read(entries: Sequence[bytes], given: ChangeReader) -> tuple[list[TableBatch], list[Row]]:
    """Return batches and rows of the same entries."""
    frames = made.frames(entries)
    return list(given.batches(frames)), list(given.rows(frames))


def values(frames: Sequence[bytes], given: ChangeReader) -> list[dict[str, Any]]:
    """Return the new values of rows, which are the same in batches, in rows and in entries."""
    batches, rows = read(frames, given)
    found = [
        {name: value for name, value in each.items() if name not in {field.name for field in META}}
        for batch in batches
        for each in batch.rows.to_pylist()
    ]
    assert found == [row.after for row in rows]
    entries = list(Messages.FromString(given.transformed(made.frames(frames))).messages)
    assert found == [row.after for row in rows_of(entries)]
    assert [(row.schema, row.table) for row in rows] == [(row.schema, row.table) for row in rows_of(entries)]
    assert [(batch.schema, batch.table) for batch in batches] == list(
        dict.fromkeys((row.schema, row.table) for row in rows)
    )
    return found


def names(batch: TableBatch) -> str:
    """Return schema.table."""
    return f"{batch.schema}.{batch.table}"


def hashed(text: str, key: str = "k") -> str:
    """Return what a node's column privacy makes of a text."""
    return hmac.new(key.encode(), text.encode(), "sha256").hexdigest()


# ---- columns


def test_a_dropped_column_is_missing() -> None:
    """In any case of its name; other tables keep theirs."""
    row = inserted([ID, NAME, MAIL], "1", "Ada", "ada@x")
    other = inserted([ID, MAIL], "2", "b@x", table="u", offset=2)
    drop = {"drop": {"tables": "s.T", "columns": ["MAIL", "missing"]}}
    assert values([row, other], reader(drop)) == [{"id": 1, "name": "Ada"}, {"id": 2, "mail": "b@x"}]


def test_a_masked_column_keeps_null() -> None:
    """It is a text of the type varchar(64), whatever its own type is."""
    rows = [inserted([ID, PRICE], "1", "9.50"), inserted([ID, PRICE], "2", None, offset=2)]
    mask = reader({"mask": {"columns": "price"}})
    assert values(rows, mask) == [{"id": 1, "price": "***"}, {"id": 2, "price": None}]
    [batch, *_], _ = read(rows, mask)
    field = batch.rows.schema.field("price")
    assert (field.type, field.metadata[TYPE], field.metadata[KEY]) == (pa.string(), b"varchar(64)", b"0")


@pytest.mark.parametrize(
    ("mysql_type", "sql_type", "text", "counts"),
    [
        ("varchar(60)", 12, "Ada ☃", "Ada ☃"),
        ("int", 4, "-7", "-7"),
        ("bigint unsigned", -5, "18446744073709551615", "18446744073709551615"),
        ("decimal(20,9)", 3, "0.000000100", "0.000000100"),
        ("double", 8, "1.0E10", "1.0E10"),
        ("float", 7, "1.1", "1.1"),
        ("datetime(3)", 93, "2026-01-31 12:00:00.120", "2026-01-31 12:00:00.120"),
        ("date", 91, "0000-00-00", "0000-00-00"),
        ("enum('a','b')", 4, "2", "b"),
        ("set('a','b')", -7, "3", "a,b"),
        ("varbinary(9)", -3, "\x00\xff", "\x00\xff"),
        ("json", 12, '{"a": 1}', '{"a": 1}'),
        ("text", 2004, "\xc3\xa9", "é"),
    ],
)
def test_a_hash_is_that_of_the_nodes_privacy(mysql_type: str, sql_type: int, text: str, counts: str) -> None:
    """Of the exact text, in UTF-8; labels for ENUM and SET."""
    column: made.ColumnSpec = ("c", mysql_type, sql_type, False)
    rows = [inserted([ID, column], str(key), text, offset=key) for key in (1, 2)]
    rows.append(inserted([ID, column], "3", None, offset=3))
    hash_ = reader({"hash": {"tables": "s.*", "columns": ["c"], "key": "k"}})
    assert [row["c"] for row in values(rows, hash_)] == [hashed(counts), hashed(counts), None]


def test_a_batch_hashes_equal_values_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of few values costs little."""
    calls = []

    def counted(_: Privacy, text: bytes) -> bytes:
        calls.append(text)
        return b"h"

    monkeypatch.setattr(Privacy, "_hashed", counted)
    images = [(None, {"id": str(key), "name": f"name {key % 3}"}) for key in range(1000)]
    frames = made.frames([made.rows(1, "INSERT", images)])
    [batch] = reader({"hash": {"columns": "name", "key": "k"}}).batches(frames)
    assert batch.rows.column("name").to_pylist() == ["h"] * 1000
    assert sorted(calls) == [b"name 0", b"name 1", b"name 2"]


def test_the_strictest_protection_counts() -> None:
    """Whatever the order in the file is; a cast does not undo it."""
    row = [inserted([ID, NAME, MAIL], "1", "Ada", "ada@x")]
    both = reader(
        {"mask": {"columns": ["name", "mail"]}},
        {"cast": {"columns": {"name": "char(3)"}}},
        {"hash": {"columns": "name", "key": "k"}},
        {"drop": {"columns": "mail"}},
        {"mask": {"columns": "mail"}},
    )
    assert values(row, both) == [{"id": 1, "name": "***"}]


def test_transforms_see_the_names_that_earlier_ones_gave() -> None:
    """A column is renamed, then hashed under its new name; its old name means nothing any more."""
    row = [inserted([ID, NAME], "1", "Ada")]
    renamed = {"rename": {"columns": {"Name": "customer", "id": "key"}}}
    late = reader(renamed, {"hash": {"columns": "customer", "key": "k"}}, {"drop": {"columns": "name"}})
    assert values(row, late) == [{"key": 1, "customer": hashed("Ada")}]


@pytest.mark.parametrize(
    ("column", "text", "wanted", "value"),
    [
        (("c", "varchar(20)", 12, False), "12", "bigint", 12),
        (("c", "varchar(20)", 12, False), "1.50", "decimal(9,3)", Decimal("1.500")),
        (("c", "bigint unsigned", -5, False), "18446744073709551615", "varchar(20)", "18446744073709551615"),
        (("c", "decimal(20,9)", 3, False), "0.000000100", "text", "0.000000100"),
        (("c", "int", 4, False), "7", "double", 7.0),
        (("c", "tinyint", -6, False), "1", "smallint", 1),
        (("c", "date", 91, False), "0000-00-00", "varchar(10)", "0000-00-00"),
        (("c", "enum('a','b')", 4, False), "2", "varchar(9)", "b"),
        (("c", "varchar(20)", 12, False), "Ada", "varbinary(20)", b"Ada"),
        (("c", "double", 8, False), "1.5", "float", 1.5),
    ],
)
def test_a_cast_gives_the_type_of_mysql_that_it_names(
    column: made.ColumnSpec, text: str, wanted: str, value: object
) -> None:
    """Values, Arrow's type and the declared type change."""
    rows = [inserted([ID, column], "1", text), inserted([ID, column], "2", None, offset=2)]
    cast = reader({"cast": {"columns": {"C": wanted}}})
    assert values(rows, cast) == [{"id": 1, "c": value}, {"id": 2, "c": None}]
    [batch, *_], _ = read(rows, cast)
    assert batch.rows.schema.field("c").metadata[TYPE] == wanted.encode()


def test_times_are_cast_to_days() -> None:
    """A row has texts for dates and times, as without a cast."""
    row = inserted([ID, ("c", "varchar(30)", 12, False)], "1", "2026-01-31 12:00:00")
    cast = reader({"cast": {"columns": {"c": "date"}}})
    [batch], [found] = read([row], cast)
    assert str(batch.rows.column("c")[0]) == "2026-01-31"
    assert found.after == {"id": 1, "c": "2026-01-31"}


@pytest.mark.parametrize(
    ("wanted", "fits", "texts"),
    [
        ("time", ("-838:59:59", "00:00:01.5", "100:00:00"), ("late", "10:60:00", "839:00:00", "5")),
        ("json", ('{"a": [1, null]}', "1e400", '"x"'), ("{", "NaN", "", "[" * 100_000)),
    ],
)
def test_a_text_that_is_no_time_or_document_stops_the_pipeline(
    wanted: str, fits: Sequence[str], texts: Sequence[str]
) -> None:
    """Messages in Debezium's formats had NULL for such a time, and lake tables the text."""
    cast = reader({"cast": {"columns": {"name": wanted}}})
    for text in fits:
        assert [row["name"] for row in values([made.insert(5, 1, text)], cast)] == [text]
    for text in texts:
        frames = made.frames([made.insert(5, 1, text)])
        for read_one in (cast.batches, cast.rows, cast.row_entries):
            with pytest.raises(SinkRefused, match=rf"^canal: a value does not fit its cast to {wanted}: "):
                list(read_one(frames))


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("9:30", "9:30:00"),
        ("-09:30", "-09:30:00"),
        ("9:30:00.5", "9:30:00.5"),
        ("2026-01-31 09:30:00", "09:30:00"),
        ("2026-01-31T09:30", "09:30:00"),
    ],
)
def test_a_cast_to_time_stopped_at_texts_that_are_times_in_mysql(text: str, time: str) -> None:
    """Copies in MySQL had them before texts were looked at; now messages and lakes have them, too."""
    cast = reader({"cast": {"columns": {"name": "time"}}})
    assert [row["name"] for row in values([made.insert(5, 1, text)], cast)] == [time]
    [row] = cast.rows(made.frames([made.insert(5, 1, text)]))
    assert row.after is not None
    assert row.after["name"] == time


def test_a_value_that_does_not_fit_its_cast_stops_the_pipeline() -> None:
    """The error has the value and the type, in batches and in rows."""
    row = [inserted([ID, NAME], "1", "Ada")]
    cast = reader({"cast": {"columns": {"name": "int"}}})
    for read_one in (cast.batches, cast.rows):
        with pytest.raises(SinkRefused, match=r"values of type varchar.* do not fit into int32"):
            list(read_one(made.frames(row)))


@pytest.mark.parametrize(("kind", "way"), [("drop", "batches"), ("mask", "rows"), ("hash", "transformed")])
def test_a_misspelled_column_was_hidden_nowhere_silently(kind: str, way: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log has it once, also behind a rename, if the transform is about one table."""
    own = {"key": "k"} if kind == "hash" else {}
    given = reader(
        {"rename": {"columns": {"mail": "address"}}},
        {kind: {"tables": "S.T", "columns": ["addres", "Address", "name"], **own}},
        {kind: {"tables": "s.*", "columns": "phone", **own}},
    )
    frames = made.frames([inserted((ID, NAME, MAIL), "1", "n", "a@x", offset=at) for at in (1, 2)])
    with caplog.at_level(logging.WARNING):
        assert list(getattr(given, way)(frames))
    assert [record.getMessage() for record in caplog.records if "nothing_to_hide" in record.getMessage()] == [
        "{'table': 's.t', 'column': 'addres', 'event': 'pipeline.nothing_to_hide'}"
    ]


def test_no_way_of_reading_a_portion_shows_a_hidden_value() -> None:
    """Neither rows nor statements, whatever method of a portion a target calls."""
    hidden, changed = {"id": "1", "name": "hunter2", "mail": "hunter2"}, {"id": "1", "name": "hunter2b", "mail": "x"}
    entries = [
        made.rows(1, "INSERT", [(None, hidden)], [ID, NAME, MAIL]),
        made.rows(2, "UPDATE", [(hidden, changed)], [ID, NAME, MAIL]),
        made.ddl(3, "ALTER TABLE t ADD name VARCHAR(20) DEFAULT 'hunter2'"),
    ]
    given = portion(1, 3, entries, reader=reader({"drop": {"columns": "name"}}, {"mask": {"columns": "mail"}}))
    assert b"hunter2" in given.frames
    assert b"hunter2" not in given.reader.transformed(given.frames)
    ways = [name for name, each in vars(Portion).items() if inspect.isfunction(each) and not name.startswith("_")]
    assert {"batches", "changes"} <= set(ways)
    for way in ways:
        found = getattr(given, way)()
        assert "hunter2" not in "".join(shown(each) for each in found), f"Portion.{way} leaves the transforms out"


def shown(value: object) -> str:
    """Return all that a thing read from a portion tells."""
    return str(value.rows.to_pydict()) if isinstance(value, TableBatch) else repr(value)


# ---- keys


@pytest.mark.parametrize("kind", ["drop", "mask"])
@pytest.mark.parametrize("way", ["batches", "rows", "transformed"])
def test_a_key_is_not_hidden_silently(kind: str, way: str) -> None:
    """The first row says which transform hides which key."""
    given = reader({kind: {"columns": "id"}})
    with pytest.raises(SinkRefused, match=rf"the transform {kind} hides id, a key column of s\.t"):
        list(getattr(given, way)(made.frames([made.insert(1, 1)])))


@pytest.mark.parametrize("kind", ["drop", "mask"])
def test_a_given_key_is_not_hidden_either(kind: str) -> None:
    """`keys` has the names of the target."""
    plain: made.ColumnSpec = ("id", "int", 4, False)
    renamed = {"route": {"match": r"s\.t", "to": "lake.rows"}}
    given = reader(renamed, {kind: {"columns": "id"}}, keys={"lake.rows": ["ID"]})
    with pytest.raises(SinkRefused, match=f"the transform {kind} hides id"):
        list(given.batches(made.frames([inserted([plain, NAME], "1", "x")])))


def test_a_hashed_key_finds_its_row() -> None:
    """The last change of each key counts, and the key is the hash."""
    entries = [
        made.rows(1, "INSERT", [(None, {"id": "1", "name": "a"}), (None, {"id": "2", "name": "b"})]),
        made.rows(2, "UPDATE", [({"id": "1", "name": "a"}, {"id": "1", "name": "c"})]),
        made.rows(3, "DELETE", [({"id": "2", "name": "b"}, None)]),
    ]
    given = reader({"hash": {"columns": "id", "key": "k"}})
    [found] = latest(given.batches(made.frames(entries)), {})
    assert found.keys == ("id",)
    assert found.upserts.to_pylist() == [{"id": hashed("1"), "name": "c"}]
    assert found.deletes.to_pylist() == [{"id": hashed("2")}]


def test_both_images_of_a_row_are_changed() -> None:
    """An update and a delete show the same as an insert."""
    old, new = {"id": "1", "name": "a"}, {"id": "1", "name": "b"}
    entries = [made.rows(1, "UPDATE", [(old, new)]), made.rows(2, "DELETE", [(new, None)])]
    rows = list(reader({"mask": {"columns": "name"}}, {"rename": {"columns": {"id": "k"}}}).rows(made.frames(entries)))
    hidden = {"k": 1, "name": "***"}
    assert [(row.before, row.after) for row in rows] == [(hidden, hidden), (hidden, None)]


def test_an_entry_has_the_types_and_places_of_its_columns() -> None:
    """As a node's column privacy would write them; a masked column never counts as updated."""
    old, new = {"id": "1", "name": "a", "mail": "m"}, {"id": "1", "name": "b", "mail": "n"}
    frames = made.frames([made.rows(1, "UPDATE", [(old, new)], [ID, NAME, MAIL])])
    given = reader(
        {"drop": {"columns": "name"}}, {"mask": {"columns": "mail"}}, {"cast": {"columns": {"id": "bigint"}}}
    )
    [raw] = Messages.FromString(given.transformed(frames)).messages
    [row] = row_change(parse(raw)).rowDatas
    for image in (row.beforeColumns, row.afterColumns):
        assert [(each.index, each.name, each.sqlType, each.mysqlType, each.value, each.isKey) for each in image] == [
            (0, "id", -5, "bigint", "1", True),
            (1, "mail", 12, "varchar(64)", "***", False),
        ]
        assert not image[1].updated


PARTIAL: Sequence[made.ColumnSpec] = [ID, ("gone", "int", 4, False), NAME, MAIL]


@pytest.mark.parametrize("way", [{"mask": {"columns": "mail"}}, {"drop": {"columns": ["gone", "mail"]}}])
def test_a_transform_took_the_key_out_of_an_update_with_a_partial_image(way: Mapping[str, Any]) -> None:
    """The columns of both images got places of their own, so `name` stood at the place of `id`, and replaced it."""
    entry = made.rows(1, "UPDATE", [({"id": "1"}, {"name": "b"})], PARTIAL)
    origin, placement = MessageOrigin("d", 1, 1), Placement(None, 1)
    for given in (reader(), reader(way)):
        [found] = given.row_entries(made.frames([entry]))
        [message] = DebeziumJson({}, "UTC", tombstones=True).records(found, "t", placement, origin)
        assert json.loads(message.key or b"") == {"id": 1}
        assert json.loads(message.value or b"")["after"] == {"id": 1, "name": "b"}
        [of_canal] = CanalJson().records(found, "t", placement, origin)
        assert json.loads(of_canal.value or b"")["old"] == [{}]


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [("datetime(6)", [1_500_000, 1_000_000]), ("datetime(3)", [1500, 1000]), ("datetime", [1000, 1000])],
)
def test_a_cast_to_datetime_gave_milliseconds_or_microseconds_by_the_value(wanted: str, shown: Sequence[int]) -> None:
    """All values of a column have the unit of its type, whatever their fractions are."""
    texts = ("1970-01-01 00:00:01.500000", "1970-01-01 00:00:01.000000")
    entries = [inserted([ID, ("c", "datetime(6)", 93, False)], "1", text) for text in texts]
    cast = reader({"cast": {"columns": {"c": wanted}}})
    found = []
    for entry in cast.row_entries(made.frames(entries)):
        [message] = DebeziumJson({}, "UTC", tombstones=True).records(
            entry, "t", Placement(None, 1), MessageOrigin("d", 1, 1)
        )
        found.append(json.loads(message.value or b"")["after"]["c"])
    assert found == shown


def test_a_cast_to_timestamp_was_shifted_by_the_time_zone_twice() -> None:
    """The text is in the zone of the server process, as those of other timestamps are."""
    entry = inserted([ID, ("c", "timestamp", 93, False)], "1", "2024-01-02 08:00:00")
    cast = reader({"cast": {"columns": {"c": "timestamp(3)"}}}, time_zone="Asia/Shanghai")
    [found] = cast.row_entries(made.frames([entry]))
    [message] = DebeziumJson({}, "Asia/Shanghai", tombstones=True).records(
        found, "t", Placement(None, 1), MessageOrigin("d", 1, 1)
    )
    assert json.loads(message.value or b"")["after"]["c"] == "2024-01-02T00:00:00Z"


def test_two_columns_with_one_name_are_refused() -> None:
    """In any case of the name."""
    given = reader({"rename": {"columns": {"name": "ID"}}})
    for read_one in (given.batches, given.rows):
        with pytest.raises(SinkRefused, match=r"two columns of s\.t the name (id|ID)"):
            list(read_one(made.frames([made.insert(1, 1)])))


# ---- tables


def test_a_table_is_renamed() -> None:
    """Only this one."""
    entries = [made.insert(1, 1), made.insert(2, 2, table="u")]
    batches, rows = read(entries, reader({"rename": {"tables": "s.t", "to": "lake.customers"}}))
    assert [names(batch) for batch in batches] == ["lake.customers", "s.u"]
    assert [f"{row.schema}.{row.table}" for row in rows] == ["lake.customers", "s.u"]


def test_a_route_renames_by_its_groups() -> None:
    """The expression matches the whole name; a table that it does not match keeps its name."""
    entries = [made.insert(1, 1, table="orders"), made.insert(2, 2, table="t")]
    batches, _ = read(entries, reader({"route": {"match": r"(s)\.(o\w+)", "to": r"lake_\1.\2_copy"}}))
    assert [names(batch) for batch in batches] == ["lake_s.orders_copy", "s.t"]


def test_tables_become_one_only_if_the_file_says_so() -> None:
    """Otherwise the second of them stops the pipeline."""
    entries = [made.insert(1, 1, table="t_1"), made.insert(2, 2, table="t_2")]
    route = {"match": r"s\.t_\d", "to": "s.t"}
    with pytest.raises(SinkRefused, match=r"s\.t_1 and s\.t_2 are both s\.t at the target"):
        read(entries, reader({"route": route}))
    batches, _ = read(entries, reader({"route": {**route, "merge": True}}))
    assert [names(batch) for batch in batches] == ["s.t", "s.t"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"route": {"match": "(", "to": "a.b"}}, r"route\.match: expected a regular expression of RE2"),
        ({"route": {"match": "a", "to": r"a.\1"}}, r"route\.to: expected groups up to \\0"),
        ({"route": {"match": r"(?=a)", "to": "a.b"}}, r"route\.match"),
        ({"rename": {"tables": "s.*", "to": "a.b"}}, r"rename\.tables: expected the name of one table"),
        ({"rename": {"to": "a.b"}}, r"rename\.tables: expected the name of one table"),
        ({"rename": {"columns": {"a": "_op"}}}, r"rename\.columns: expected another new name than _op"),
        ({"cast": {"columns": {"a": "hologram"}}}, r"cast\.columns\.a: expected a type of MySQL"),
        ({"cast": {"columns": {"a": "enum('x')"}}}, r"cast\.columns\.a: expected a type of MySQL"),
    ],
)
def test_what_cannot_work_is_refused_before_any_row(given: Mapping[str, Any], says: str) -> None:
    """The error names the key."""
    with pytest.raises(OptionInvalid, match=says):
        reader(given)


# ---- statements


def statement(sql: str, *transforms: Mapping[str, Any], takes: Callable[[str, str], bool] = everything) -> str:
    """Return the text that a target gets; the same in a batch and in a row."""
    (batch,), (row,) = read([made.ddl(1, sql)], reader(*transforms, takes=takes))
    [text] = batch.rows.column("_ddl").to_pylist()
    assert text == row.sql
    changed = reader(*transforms, takes=takes).transformed(made.frames([made.ddl(1, sql)]))
    [shown] = rows_of(Messages.FromString(changed).messages)
    assert (shown.schema, shown.table, shown.sql) == (row.schema, row.table, row.sql)
    assert (batch.schema, batch.table) == (row.schema, row.table)
    return str(text)


RENAMED = {"rename": {"tables": "s.t", "to": "lake.t`2"}}


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("TRUNCATE t", "TRUNCATE TABLE `lake`.`t``2`"),
        ("DROP TABLE IF EXISTS s.t /* gone */", "DROP TABLE `lake`.`t``2`"),
        ("CREATE TABLE t (id INT)", "TRUNCATE TABLE `lake`.`t``2`"),
        ("ALTER TABLE t ADD c INT DEFAULT 7 -- why", "ALTER TABLE `lake`.`t``2` ADD c INT DEFAULT 7"),
        ("ALTER ONLINE TABLE IF EXISTS `s` . `t` DROP `x`", "ALTER TABLE `lake`.`t``2` DROP `x`"),
        ("CREATE INDEX i ON t (id)", "ALTER TABLE `lake`.`t``2`"),
    ],
)
def test_a_statement_names_the_table_of_the_target(sql: str, text: str) -> None:
    """Without the comments."""
    assert statement(sql, RENAMED) == text


def test_a_statement_about_other_tables_stays_as_it_is() -> None:
    """A table that no transform is about has the text of the source."""
    sql = "ALTER TABLE t ADD c INT -- why"
    assert statement(sql, {"drop": {"tables": "s.u", "columns": "c"}}) == sql


DROPS = {"drop": {"columns": "mail"}}
HASHES = {"hash": {"columns": ["mail", "address"], "key": "k"}}
CASTS = {"cast": {"columns": {"mail": "text"}}}
RENAMES = {"rename": {"columns": {"mail": "e`mail"}}}


@pytest.mark.parametrize(
    ("items", "transform", "made"),
    [
        ("ADD mail INT DEFAULT 5", DROPS, ""),
        ("ADD mail INT DEFAULT 5", HASHES, ""),
        ("ADD mail INT DEFAULT 5", CASTS, ""),
        ("ADD COLUMN `mail` INT DEFAULT 5 AFTER id", RENAMES, " ADD COLUMN `e``mail` INT DEFAULT 5 AFTER id"),
        ("DROP COLUMN MAIL", DROPS, ""),
        ("DROP COLUMN MAIL", HASHES, " DROP COLUMN `MAIL`"),
        ("DROP MAIL", RENAMES, " DROP `e``mail`"),
        ("MODIFY mail CHAR(9)", CASTS, ""),
        ("MODIFY mail CHAR(9)", RENAMES, " MODIFY `e``mail` CHAR ( 9 )"),
        ("RENAME COLUMN mail TO address", HASHES, " RENAME COLUMN `mail` TO `address`"),
        ("CHANGE mail address CHAR(9)", HASHES, " RENAME COLUMN `mail` TO `address`"),
        ("RENAME COLUMN mail TO address", RENAMES, " RENAME COLUMN `e``mail` TO `address`"),
        ("RENAME COLUMN other TO mail", DROPS, " DROP COLUMN `other`"),
        ("ADD x INT DEFAULT 3, DROP mail, ADD y INT", DROPS, " ADD x INT DEFAULT 3, ADD y INT"),
        ("ADD x DECIMAL(9,2), ADD mail SET('a,b','c')", HASHES, " ADD x DECIMAL ( 9 , 2 )"),
    ],
)
def test_a_statement_is_about_the_columns_of_the_target(items: str, transform: Mapping[str, Any], made: str) -> None:
    """Items about columns with other values are left out, unless they drop or rename the column."""
    assert statement(f"ALTER TABLE t {items}", transform) == f"ALTER TABLE `s`.`t`{made}"


def test_an_item_about_several_columns_leaves_the_text_out() -> None:
    """The columns of the rows that follow tell what it did."""
    assert statement("ALTER TABLE t ADD (mail INT, x INT)", DROPS) == ""


def test_a_statement_about_other_columns_keeps_its_items() -> None:
    """Targets apply it, with its default."""
    sql = "ALTER TABLE t ADD x INT DEFAULT 3"
    assert statement(sql, {"drop": {"columns": "mail"}}) == "ALTER TABLE `s`.`t` ADD x INT DEFAULT 3"


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t RENAME COLUMN mail TO address",
        "ALTER TABLE t CHANGE mail address VARCHAR(20)",
        "RENAME TABLE t TO clients",
        "ALTER TABLE t RENAME TO clients",
        "RENAME TABLE t TO x.y, x.y TO s.clients",
    ],
)
@pytest.mark.parametrize("kind", ["drop", "mask"])
def test_a_new_name_does_not_show_a_protected_column(sql: str, kind: str) -> None:
    """The pipeline stops until the transforms have the new name."""
    protect = {kind: {"tables": "s.t", "columns": "mail"}}
    for way in ("batches", "rows"):
        with pytest.raises(SinkRefused, match="add that name to them"):
            list(getattr(reader(protect), way)(made.frames([made.ddl(1, sql)])))
    both = {kind: {"tables": ["s.t", "s.clients", "x.y"], "columns": ["mail", "address"]}}
    read([made.ddl(1, sql)], reader(both))


def test_a_table_may_leave_the_pipeline_under_an_unprotected_name() -> None:
    """Tools for schema changes keep the old table as _t_del; nothing of it is read."""
    protect = {"mask": {"tables": "s.t", "columns": "mail"}}
    text = statement("RENAME TABLE t TO _t_del", protect, takes=lambda _, table: table == "t")
    assert text == "TRUNCATE TABLE `s`.`t`"


def test_a_statement_about_one_of_several_tables_leaves_the_rows_of_the_others() -> None:
    """Nothing is emptied."""
    merge = {"route": {"match": r"s\.t\w*", "to": "s.all", "merge": True}}
    for sql in ("TRUNCATE t", "DROP TABLE t", "RENAME TABLE t TO u"):
        [batch, *_], _ = read([made.ddl(1, sql)], reader(merge))
        assert batch.rows.column("_ddl").to_pylist() == ["ALTER TABLE `s`.`all`"]


def test_a_copy_under_another_name_is_emptied() -> None:
    """`latest` reads the text that the transforms have written."""
    entries = [made.insert(1, 1), made.ddl(2, "TRUNCATE TABLE s.t", "TRUNCATE"), made.insert(3, 2)]
    [found] = latest(reader(RENAMED).batches(made.frames(entries)), {})
    assert (found.schema, found.table, found.emptied) == ("lake", "t`2", True)
    assert [row["id"] for row in found.upserts.to_pylist()] == [2]


def test_columns_come_and_go_under_another_name() -> None:
    """Rows before an ALTER TABLE get the default of the new column."""
    more: made.ColumnSpec = ("c", "int", 4, False)
    entries = [
        inserted([ID, NAME], "1", "a"),
        made.ddl(2, "ALTER TABLE t ADD c INT DEFAULT 7"),
        inserted([ID, NAME, more], "2", "b", "8", offset=3),
    ]
    [found] = latest(reader(RENAMED, {"mask": {"columns": "name"}}).batches(made.frames(entries)), {})
    assert found.upserts.to_pylist() == [{"id": 1, "name": "***", "c": 7}, {"id": 2, "name": "***", "c": 8}]
