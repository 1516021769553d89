"""The kernel writes Debezium's messages as Python and fastavro do value by value, for all types and all changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canal_ha.client.message import parse
from canal_ha.errors import RemoteProtocolError
from canal_ha.pipeline.messages.avro import Avro
from canal_ha.pipeline.messages.debezium_json import DebeziumJson
from canal_ha.pipeline.messages.queue_message import MessageFormat, MessageOrigin, QueueMessage
from canal_ha.pipeline.messages.routing import PartitionKey, Placement
from canal_ha.pipeline.row_entry import RowEntry
from canal_ha.wire.proto.entry_protocol_pb2 import RowChange
from tests.pipeline.messages import reference
from tests.pipeline.messages.recorded import row_entry
from tests.sampling import examples
from tests.spark.entries import ColumnSpec, rows

ORIGIN = MessageOrigin("d", 1, 1_700_000_000_000)
ZONES = ["UTC", "Asia/Shanghai"]

Texts = st.SearchStrategy[str]
Found = list[QueueMessage] | tuple[str, str]


def number(bits: int, *, signed: bool = True) -> Texts:
    """Return whole numbers of a type, some with zeros before them."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    edges = st.sampled_from([low, high, 0, 1, min(high, 10**18 - 1), min(high, 10**18)])
    return st.one_of(st.integers(low, high), edges).map(str) | st.sampled_from(["-0", "00", "07", "-07", "00042"])


def exact(digits: int, scale: int) -> Texts:
    """Return decimals with all digits behind the point."""
    most = 10**digits - 1

    def text(unscaled: int) -> str:
        whole, rest = divmod(abs(unscaled), 10**scale)
        return f"{'-' if unscaled < 0 else ''}{whole}" + (f".{rest:0{scale}d}" if scale else "")

    return st.one_of(st.integers(-most, most), st.integers(-300, 300)).map(text)


def fractions(most: int) -> Texts:
    """Return fractions of a second with up to so many digits, or none."""
    return st.just("") | st.integers(1, most).flatmap(
        lambda size: st.sampled_from([0, 1, 10**size // 2, 10**size - 1]).map(lambda part: f".{part:0{size}d}")
    )


DAYS = st.dates().map(str) | st.sampled_from(
    ["0000-00-00", "2020-00-00", "2023-02-31", "1900-02-29", "2000-02-29", "0001-01-01", "9999-12-31", "20200101"]
)
CLOCKS = st.times().map(lambda time: time.strftime("%H:%M:%S"))
MOMENTS = st.tuples(DAYS, CLOCKS, fractions(6)).map("{0[0]} {0[1]}{0[2]}".format)
TIMES = st.tuples(
    st.sampled_from(["", "-"]),
    st.integers(0, 900).map("{:02d}".format),
    CLOCKS.map(lambda text: text[2:]),
    fractions(6),
).map("".join)
REALS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map("{:.6g}".format),
    st.integers(-(10**17), 10**17).map(str),
    st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 10**9)).map("{0[0]}.{0[1]}".format),
    st.tuples(st.integers(0, 99), st.integers(0, 10**12)).map("{0[0]}.{0[1]:012d}".format),
    st.sampled_from(["0", "-0", "0.0", "-0.0", "0.5", "0.05", "0.0001", "0.00001", "1e5", "5.", ".5", "1.50", "00.5"]),
)
CHARACTERS = st.text(
    st.sampled_from('ab"\\\n\t\x00\x1f\x7fé字😀') | st.characters(exclude_categories=["Cs"]), max_size=40
)
LATIN = st.binary(max_size=40).map(lambda raw: raw.decode("latin-1"))

TYPES: Sequence[tuple[str, int, Texts]] = [
    ("tinyint", -6, number(8)),
    ("int(11)", 4, number(32)),
    ("int unsigned", 4, number(32, signed=False)),
    ("bigint", -5, number(64)),
    ("bigint unsigned", -5, number(64, signed=False)),
    ("decimal(10,4)", 3, exact(10, 4)),
    ("decimal(38,18)", 3, exact(38, 18)),
    ("decimal(12)", 3, exact(12, 0)),
    ("decimal(65,2)", 3, exact(65, 2)),
    ("float", 7, REALS),
    ("float(30)", 7, REALS),
    ("double", 8, REALS),
    ("bit(1)", -7, st.sampled_from(["0", "1"])),
    ("bit(9)", -7, st.integers(0, 511).map(str)),
    ("bit(64)", -7, st.integers(0, (1 << 64) - 1).map(str)),
    ("date", 91, DAYS),
    ("datetime", 93, MOMENTS.map(lambda text: text[:19])),
    ("datetime(3)", 93, MOMENTS.map(lambda text: text[:23])),
    ("datetime(6)", 93, MOMENTS),
    ("timestamp(6)", 93, MOMENTS),
    ("timestamp", 2014, MOMENTS),
    ("time(6)", 92, TIMES),
    ("year", 12, st.sampled_from(["0000", "1901", "2155"])),
    ("char(9)", 1, CHARACTERS),
    ("varchar(40)", 12, CHARACTERS),
    ("longtext", -4, LATIN),
    ("json", 12, CHARACTERS | st.sampled_from(['{"a": "é"}', "JSON", "JSON_SET(`c`, '$.a', 1)"])),
    ("enum('a','b')", 4, st.sampled_from(["1", "2", "0"])),
    ("set('a','b')", -7, st.integers(0, 3).map(str)),
    ("binary(4)", -2, LATIN.map(lambda text: text[:4])),
    ("varbinary(40)", -3, LATIN),
    ("blob", 2004, LATIN),
    ("inet6", 12, CHARACTERS),
]
IDS = [f"{kind} {code}" for kind, code, _ in TYPES]
Image = Mapping[str, str | None]


@st.composite
def columns_of(draw: st.DrawFn) -> list[ColumnSpec]:
    """Return the columns of a table; any of them may be part of the key."""
    kinds = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=6))
    names = draw(st.lists(st.sampled_from(["id", "a b", "ü", 'q"', "c", "d", "e"]), min_size=6, unique=True))
    return [(name, kind[0], kind[1], draw(st.booleans())) for name, kind in zip(names, kinds, strict=False)]


@st.composite
def images_of(
    draw: st.DrawFn, columns: Sequence[ColumnSpec], names: Sequence[str], wrong: bool
) -> dict[str, str | None]:
    """Return an image with the columns of these names. wrong: values may be of another type."""
    texts = {(kind, code): values for kind, code, values in TYPES}
    image: dict[str, str | None] = {}
    for name, kind, code, _ in columns:
        if name in names:
            values = texts[kind, code] | CHARACTERS if wrong else texts[kind, code]
            image[name] = draw(st.none() | values)
    return image


@st.composite
def entries_of(draw: st.DrawFn, partial: bool) -> tuple[bytes, list[str]]:
    """Return an entry and names of its columns that may be given as keys. partial: images may lack columns."""
    columns = draw(columns_of())
    every = [column[0] for column in columns]
    some = st.lists(st.sampled_from(every), min_size=1, unique=True) if partial else st.just(every)
    event, wrong = draw(st.sampled_from(["INSERT", "UPDATE", "DELETE"])), draw(st.integers(0, 9)) == 0
    before, after = draw(some), draw(some)
    made: list[tuple[Image | None, Image | None]] = []
    for _ in range(draw(st.integers(1, 3))):
        old = draw(images_of(columns, before, wrong))
        new = draw(images_of(columns, after, wrong))
        if draw(st.booleans()):
            new = {name: old.get(name, text) for name, text in new.items()}
        made.append((None if event == "INSERT" else old, None if event == "DELETE" else new))
    return rows(77, event, made, columns, snapshot="s" if draw(st.booleans()) else ""), every


def found(make: Callable[[RowEntry], Iterable[QueueMessage]], raw: bytes) -> Found:
    """Return the messages of an entry, or the type and text of the error."""
    try:
        return list(make(row_entry(raw)))
    except Exception as error:
        return type(error).__name__, str(error)


class Given:
    """How messages are made. schemas: of the last Avro made, `key` and `value`."""

    def __init__(self, data: st.DataObject, names: Sequence[str]) -> None:
        """Draw them. names: of columns."""
        some = st.lists(st.sampled_from(names), min_size=1, unique=True)
        given_keys = data.draw(st.none() | some)
        self.keys = {} if given_keys is None else {"s.t": given_keys}
        self.zone = data.draw(st.sampled_from(ZONES))
        self.tombstones = data.draw(st.booleans())
        key = PartitionKey(data.draw(st.none() | st.just((names[0], "none"))))
        self.placement = Placement(key, data.draw(st.sampled_from([1, 5])))
        self.schemas: dict[str, str] = {}

    def json(self, entry: RowEntry) -> Iterable[QueueMessage]:
        """Return the messages of the kernel."""
        made = DebeziumJson(self.keys, self.zone, tombstones=self.tombstones)
        return made.records(entry, "t", self.placement, ORIGIN)

    def json_of_python(self, entry: RowEntry) -> Iterable[QueueMessage]:
        """Return the messages to compare with."""
        return reference.debezium_json(entry, self.keys, self.zone, self.placement, ORIGIN, tombstones=self.tombstones)

    def avro(self, entry: RowEntry) -> Iterable[QueueMessage]:
        """Return the messages of the kernel."""
        return avro(self.schemas, self.keys, self.zone, tombstones=self.tombstones).records(
            entry, "t", self.placement, ORIGIN
        )

    def avro_of_fastavro(self, entry: RowEntry) -> Iterable[QueueMessage]:
        """Return the messages to compare with, by the schemas of those of the kernel."""
        return reference.avro(
            entry, self.keys, self.zone, self.schemas, self.placement, ORIGIN, tombstones=self.tombstones
        )


def avro(schemas: dict[str, str], keys: Mapping[str, Sequence[str]], zone: str, *, tombstones: bool) -> Avro:
    """Return the format. schemas: for those that it registers, `key` and `value`."""

    def register(subject: str, schema: str) -> int:
        schemas[subject.rpartition("-")[2]] = schema
        return 1 if subject.endswith("-key") else 2

    return Avro(keys, zone, register, tombstones=tombstones)


@given(st.data())
@settings(max_examples=examples(400), deadline=None)
def test_json_is_what_python_writes_value_by_value(data: st.DataObject) -> None:
    raw, names = data.draw(entries_of(partial=True))
    how = Given(data, names)
    assert found(how.json, raw) == found(how.json_of_python, raw)


@given(st.data())
@settings(max_examples=examples(400), deadline=None)
def test_avro_is_what_fastavro_writes_value_by_value(data: st.DataObject) -> None:
    """Errors have the same type; fastavro's texts name whole rows."""
    raw, names = data.draw(entries_of(partial=False))
    how = Given(data, names)
    kernel = found(how.avro, raw)
    expected = found(how.avro_of_fastavro, raw)
    assert kernel == expected or (isinstance(expected, tuple) and kernel[0] == expected[0])


def column(texts: Sequence[str | None], kind: str, code: int) -> bytes:
    """Return an entry of a snapshot with a row for each text, in a column that is the key, too."""
    return rows(1, "INSERT", [(None, {"c": text}) for text in texts], [("c", kind, code, True)])


@pytest.mark.parametrize(("kind", "code", "values"), TYPES, ids=IDS)
@given(data=st.data())
@settings(max_examples=examples(40), deadline=None)
def test_json_of_each_type_is_what_python_writes(kind: str, code: int, values: Texts, data: st.DataObject) -> None:
    if kind == "json":
        values = values.filter(lambda text: not text.startswith("JSON_"))
    raw = column(data.draw(st.lists(st.none() | values, min_size=1, max_size=80)), kind, code)
    made, placement = DebeziumJson({}, "UTC", tombstones=True), Placement(None, 1)
    messages = list(made.records(row_entry(raw), "t", placement, ORIGIN))
    assert messages == list(reference.debezium_json(row_entry(raw), {}, "UTC", placement, ORIGIN, tombstones=True))


@pytest.mark.parametrize(("kind", "code", "values"), TYPES, ids=IDS)
@given(data=st.data())
@settings(max_examples=examples(40), deadline=None)
def test_avro_of_each_type_is_what_fastavro_writes(kind: str, code: int, values: Texts, data: st.DataObject) -> None:
    if kind == "json":
        values = values.filter(lambda text: not text.startswith("JSON_"))
    if kind.startswith("float"):
        values = values.filter(lambda text: abs(float(text)) < 3e38)
    raw = column(data.draw(st.lists(st.none() | values, min_size=1, max_size=80)), kind, code)
    schemas: dict[str, str] = {}
    placement = Placement(None, 1)
    messages = list(avro(schemas, {}, "UTC", tombstones=True).records(row_entry(raw), "t", placement, ORIGIN))
    assert messages == list(reference.avro(row_entry(raw), {}, "UTC", schemas, placement, ORIGIN, tombstones=True))


def formats() -> list[MessageFormat]:
    """Return both formats."""
    return [DebeziumJson({}, "UTC", tombstones=True), avro({}, {}, "UTC", tombstones=True)]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("decimal(4,2)", "123.45"),
        ("decimal(4,2)", "1.005"),
        ("int", "2147483648"),
        ("int", "-2147483649"),
        ("int", "x"),
    ],
)
def test_a_value_that_its_type_in_avro_does_not_hold_is_an_error(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(
            avro({}, {}, "UTC", tombstones=True).records(
                row_entry(column([text], kind, 4)), "t", Placement(None, 1), ORIGIN
            )
        )


@pytest.mark.parametrize("kind", ["INSERT", "UPDATE", "DELETE"])
def test_a_value_that_is_no_utf8_is_refused(kind: str) -> None:
    """Also one that Python's code would have to read."""
    old: Image = {"id": "1", "name": "@@@@"}
    for made in formats():
        for type_of_column in ("varchar(9)", "enum('a')", "int", "date"):
            columns: list[ColumnSpec] = [("id", "int", 4, True), ("name", type_of_column, 12, False)]
            images = [(None if kind == "INSERT" else old, None if kind == "DELETE" else {**old, "id": "2"})]
            entry = row_entry(rows(1, kind, images, columns).replace(b"@@@@", b"\xff\xfe\xfd\xfc"))
            with pytest.raises(RemoteProtocolError, match="no UTF-8"):
                list(made.records(entry, "topic", Placement(None, 1), ORIGIN))


def test_rows_with_different_columns_are_refused() -> None:
    first, second = (rows(1, "INSERT", [(None, {name: "1"})], [(name, "int", 4, True)]) for name in ("id", "no"))
    both = parse(first)
    change, other = (RowChange.FromString(parse(raw).storeValue) for raw in (first, second))
    change.rowDatas.extend(other.rowDatas)
    both.storeValue = change.SerializeToString()
    for made in formats():
        with pytest.raises(RemoteProtocolError, match="different columns"):
            list(made.records(row_entry(both.SerializeToString()), "topic", Placement(None, 1), ORIGIN))
