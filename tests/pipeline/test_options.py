"""Options and files of pipelines: names in any case, errors in one line, and valid shipped files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from canal_ha.client.tls import ClientTls
from canal_ha.errors import OptionInvalid
from canal_ha.pipeline.destinations import resolve
from canal_ha.pipeline.options import Evolution, Shape, parse
from canal_ha.spark.pipeline_file import load, pipeline

GOOD = {"servers": "a:1, b:2", "destination": "d", "spoolDir": "/spool"}
FILE: dict[str, Any] = {"name": "n", "checkpoint": "/c", "source": GOOD, "sink": [{"type": "console"}]}
COPY = {"type": "mysql", "address": "db:3306", "user": "u"}


def test_names_in_any_case_and_defaults() -> None:
    """Spark's own sources ignore the case of option names, too."""
    options = parse({"SERVERS": "a:1, b:2", "Destination": "x,y", "spooldir": "/s", "FORMAT": "Debezium"})
    assert options.servers == ("a:1", "b:2")
    assert options.destinations == ("x", "y")
    assert (options.shape, options.evolution, options.client_id) == (Shape.DEBEZIUM, Evolution.NULL, 1001)
    assert options.fail_on_data_loss


def test_a_snapshot_is_of_all_tables_or_of_some() -> None:
    """`*` is the protocol's word for all that the filter keeps."""
    assert parse(GOOD).snapshot == ()
    assert parse({**GOOD, "snapshot": "Initial"}).snapshot == ("*",)
    assert parse({**GOOD, "snapshot": "a.b, c.d"}).snapshot == ("a.b", "c.d")


def test_any_option_of_tls_turns_it_on() -> None:
    """tls alone checks with the system's authorities; without any of the options the connection is plain."""
    assert parse(GOOD).tls is None
    assert parse({**GOOD, "tls": "true"}).tls == ClientTls()
    secured = parse({**GOOD, "tlsCa": "/ca", "tlsCert": "/cert", "tlsKey": "/key", "tlsName": "node"}).tls
    assert secured == ClientTls("/ca", "/cert", "/key", "node")


def test_a_batch_needs_no_spool_and_a_stream_no_range() -> None:
    """A snapshot serves both. The end of a range is the end of the binlog unless given."""
    alone = {name: value for name, value in GOOD.items() if name != "spoolDir"}
    assert parse({**alone, "startingOffsets": "earliest"}).for_batch().ending == "latest"
    assert parse({**GOOD, "snapshot": "a.b"}).for_batch().ending == ""
    assert parse({**GOOD, "snapshot": "a.b"}).for_stream().snapshot == ("a.b",)
    for given, says in (
        ({**alone, "snapshot": "a.b"}, "spoolDir is missing"),
        ({**GOOD, "startingOffsets": "earliest"}, "belong to spark.read"),
    ):
        with pytest.raises(OptionInvalid, match=says):
            parse(given).for_stream()
    with pytest.raises(OptionInvalid, match="needs the option snapshot or startingOffsets"):
        parse(GOOD).for_batch()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"servers": ""}, "zkServers"),
        ({"zkServers": "z:1"}, "zkServers"),
        ({"destination": " , "}, "destination is missing"),
        ({"destination": "a*"}, "a glob needs zkServers"),
        ({"clientId": "-1"}, "clientId = '-1'"),
        ({"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger = '0'"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss = 'yes'"),
        ({"format": "table"}, "option table must be schema.name"),
        ({"table": "s.t"}, "belong to format=table"),
        ({"timeZone": "Mars"}, "timeZone"),
        ({"password": "x", "passwordFile": "/y"}, "one of the options password and passwordFile"),
        ({"passwordFile": "/nowhere/at/all"}, "passwordFile"),
        ({"snapshot": "orders"}, "snapshot = 'orders': expected initial, or tables as schema.table"),
        ({"startingOffsets": "noon"}, "startingOffsets: invalid position 'noon'"),
        ({"startingOffsets": "earliest", "endingOffsets": "earliest"}, "endingOffsets: invalid end 'earliest'"),
        ({"endingOffsets": "latest"}, "endingOffsets needs startingOffsets"),
        ({"startingOffsets": "earliest", "snapshot": "a.b"}, "snapshot excludes startingOffsets"),
        ({"speed": "9"}, "'speed' is unknown"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, str], says: str) -> None:
    """The error is one line."""
    with pytest.raises(OptionInvalid) as caught:
        parse({**GOOD, **change})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": ""}, "name"),
        ({"sink": []}, "[[sink]] is missing"),
        ({"sink": [{"type": "kafka"}]}, "sink 1: type = 'kafka'"),
        ({"source": {"servers": "a:1", "destination": "d", "snapshot": "initial"}}, "spoolDir is missing"),
        ({"sink": [{"type": "delta"}]}, "path is missing"),
        ({"sink": [{"type": "console", "path": "/x"}]}, "path is unknown"),
        ({"tables": []}, "tables"),
        ({"tables": ["shop.*", "orders"]}, "tables = 'orders': expected schema.table, or a pattern as shop.*"),
        ({"chekpoint": "/x"}, "chekpoint is unknown"),
        ({"source": {**GOOD, "format": "table"}}, "a pipeline sets this option itself"),
        ({"source": {"servers": "a:1"}}, "destination is missing"),
        ({"keys": {"s.t": "id"}}, "keys.s.t"),
        ({"sink": [{"type": "delta", "path": 5}]}, "path = 5: expected a text"),
        ({"sink": [{"type": "delta", "path": "/x", "storage": {"a": 1}}]}, "expected a table of texts"),
        ({"sink": [{"type": "console", "rows": "x"}]}, "rows = 'x': expected a whole number"),
        ({"sink": [{"type": "mysql", "address": "db", "user": "u"}]}, "address = 'db': expected host:port"),
        ({"sink": [{**COPY}]}, "the source would choose the databases of the copies"),
        ({"sink": [{**COPY}], "tables": ["shop.*", "?*.[ab]"]}, "the source would choose the databases"),
        ({"sink": [{**COPY, "databases": []}]}, "databases = []: expected a list"),
        ({"sink": [{**COPY, "databases": "shop"}]}, "databases = 'shop': expected a list"),
        ({"sink": [{**COPY, "database": "canal_ha"}]}, "it holds the pipeline's own state"),
        ({"sink": [{**COPY, "database": "MySQL"}]}, "which belongs to the server"),
        ({"sink": [{**COPY, "database": "a", "databases": ["b"]}]}, "not among the databases of the sink (b)"),
        ({"source": {**GOOD, "password": "${file:absent}"}}, "password: expected a readable file: "),
        ({"sink": [{**COPY, "database": "a", "password": "${env:ABSENT}"}]}, "(mysql): password: expected a variable"),
        ({"spark": {"spark.x": "${file:absent}"}}, "[spark] spark.x: expected a readable file: absent: No such file"),
        ({"trigger": "5s"}, "trigger = '5s': expected an interval"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(change: dict[str, Any], says: str) -> None:
    """The error begins with the file's name."""
    with pytest.raises(OptionInvalid, match=r"^some\.toml: ") as caught:
        pipeline({**FILE, **change}, "some.toml")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"shop.*": ["id"]}, r"without wildcards as key, not shop\.\*"),
        ({"log": ["id"]}, "without wildcards as key, not log"),
        ({"shop.log": ["id", "ID"]}, "a column is given twice"),
    ],
)
def test_a_pattern_under_keys_of_a_toml_file_was_accepted_without_effect(keys: dict[str, list[str]], says: str) -> None:
    """As in a YAML file, keys are found by the name of a table."""
    with pytest.raises(OptionInvalid, match=f"some.toml: .*{says}"):
        pipeline({**FILE, "keys": keys}, "some.toml")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tables": ["shop.a, shop.b"]}, "tables = 'shop.a, shop.b': expected schema.table, or a pattern as shop.*"),
        ({"tables": ["shop\\..*"]}, "expected schema.table, or a pattern as shop.*"),
        ({"tables": ["shop.* "]}, "expected schema.table, or a pattern as shop.*"),
        ({"keys": {"shop.a": ["id, no"]}}, "[keys] shop.a: expected columns without commas"),
    ],
)
def test_a_pattern_that_no_table_has_was_accepted_in_a_toml_file(change: dict[str, Any], says: str) -> None:
    """As in a YAML file."""
    with pytest.raises(OptionInvalid) as caught:
        pipeline({**FILE, **change}, "p.toml")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b'trigger = "caf\xe9"', "is not valid TOML: it is not UTF-8"),
        (b"a = " + b"[" * 100_000, "is not valid TOML"),
        (b'sink = [1]\n[source]\nservers = "a:1"\ndestination = "d"\nspoolDir = "s"', "[[sink]] is missing"),
        (
            b'[source]\nservers = "a:1"\ndestination = "d"\nspoolDir = "s"\n[[sink]]\ntype = ["x"]',
            "type = ['x']: expected one of",
        ),
    ],
)
def test_a_damaged_toml_file_ended_with_a_traceback(raw: bytes, says: str, tmp_path: Path) -> None:
    """The commands showed the lines of the program."""
    file = tmp_path / "p.toml"
    file.write_bytes(b'name = "a"\ncheckpoint = "c"\n' + raw)
    with pytest.raises(OptionInvalid) as caught:
        load(file)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["..", "../../etc", "a/b", "a\\b", "a\0b", "a\nb", "x" * 129])
def test_a_name_of_a_destination_leads_to_no_other_directory(name: str) -> None:
    """The spool has a directory for each destination."""
    with pytest.raises(OptionInvalid, match="is no name of a destination"):
        resolve(parse({**GOOD, "destination": f"shop,{name}"}))


def test_tables_are_globs() -> None:
    """A glob has the form schema.table."""
    described = pipeline({**FILE, "tables": ["shop.*", "log.day?"]}, "f")
    assert described.takes("shop", "orders")
    assert described.takes("log", "day1")
    assert not described.takes("log", "day10")
    assert not described.takes("shops", "x")


@pytest.mark.parametrize(
    ("tables", "sink", "databases"),
    [
        (["shop.orders", "shop.customers", "log.*"], {}, ("shop", "log")),
        (["shop_*.orders"], {}, ("shop_*",)),
        (["*"], {"database": "copy_{schema}"}, ("copy_*",)),
        (["shop.*"], {"database": "copy_{schema}"}, ("copy_shop",)),
        (["*"], {"database": "copy[1]"}, ("copy[[]1]",)),
        (["*"], {"databases": ["shop", "log_*"]}, ["shop", "log_*"]),
    ],
)
def test_a_mysql_sink_writes_the_databases_that_the_pipeline_names(
    tables: list[str], sink: dict[str, Any], databases: Sequence[str]
) -> None:
    """Without `databases`, the schemas under `tables` and the text around {schema} name them."""
    [(_, described)] = pipeline({**FILE, "tables": tables, "sink": [{**COPY, **sink}]}, "f").sinks
    assert described["databases"] == databases


def test_secrets_of_a_pipeline_come_from_files_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path starts at the pipeline's file. Spark gets the placeholder of the source, and only in a private file the
    settings with secrets. No message and no repr shows one.
    """
    monkeypatch.setenv("S3_KEY", "s3cret env")
    (tmp_path / "password").write_text("s3cret file\n")
    body = {
        **FILE,
        "tables": ["shop.*"],
        "source": {**GOOD, "user": "u", "Password": "${file:password}"},
        "sink": [
            {**COPY, "password": "${file:password}"},
            {"type": "delta", "path": "/x", "storage": {"AWS_SECRET_ACCESS_KEY": "${env:S3_KEY}"}},
        ],
        "spark": {"master": "local[1]", "spark.a.secret": "s3cret", "spark.b": "<${env:S3_KEY}>", "spark.c": "c"},
    }
    made = pipeline(body, str(tmp_path / "p.toml"))
    assert made.options.password == "s3cret file"
    assert made.source["Password"] == f"${{file:{tmp_path}/password}}"
    assert [sink.get("password", sink.get("storage")) for _, sink in made.sinks] == [
        "s3cret file",
        {"AWS_SECRET_ACCESS_KEY": "s3cret env"},
    ]
    assert (made.spark, made.master) == ({"spark.c": "c"}, "local[1]")
    assert made.secrets == {"spark.a.secret": "s3cret", "spark.b": "<s3cret env>"}
    assert "s3cret" not in repr(made)
    with pytest.raises(OptionInvalid, match="expected a table of texts") as caught:
        pipeline({**FILE, "sink": [{"type": "delta", "path": "/x", "storage": {"a": "s3cret", "b": 1}}]}, "f")
    assert "s3cret" not in str(caught.value)


def test_the_shipped_files_are_right(tmp_path: Path) -> None:
    """Each shipped file loads unchanged, but for the directory of the container's secrets."""
    root = Path(__file__).parents[2]
    for name in ("zookeeper", "client.password"):
        (tmp_path / name).write_text("canal:secret\n")
    compose = tmp_path / "spark.toml"
    shipped = (root / "deploy" / "compose" / "spark.toml").read_text()
    compose.write_text(shipped.replace("/canal/secrets/", f"{tmp_path}/"))
    files = [*sorted((root / "conf" / "pipeline").glob("*.toml")), compose]
    assert [load(file).sinks[0][0] for file in files] == ["delta", "mysql", "parquet", "delta"]


def test_triggers_are_sparks() -> None:
    """Intervals have Spark's spelling."""
    for text in ("", "5 seconds", "1 minute 30 seconds", "available-now"):
        assert pipeline({**FILE, "trigger": text}, "f").trigger == text
