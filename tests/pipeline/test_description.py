"""Pipeline files: what is read, and what an error says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from canal_ha.errors import OptionInvalid
from canal_ha.pipeline import schema
from canal_ha.pipeline.description import Description, load, read
from canal_ha.pipeline.key_tables import idle_keys
from canal_ha.pipeline.named_files import NAMED
from canal_ha.pipeline.options import parse
from canal_ha.pipeline.yaml_text import MOST_BYTES, YamlText, scalar
from canal_ha.spark import pipeline_file

FILE = """\
name: shop
engine: embedded
source: {servers: "localhost:11111", destination: example}
target: {type: http, url: "http://127.0.0.1:8080/rows"}
"""


def described(text: str = "", file: str = "shop.yaml") -> Description:
    """Read a file that has these lines after its usual ones."""
    return read(f"{FILE}{text}".encode(), file)


def problems(text: str, file: str = "shop.yaml") -> list[str]:
    """Return the lines of the error that reading gives."""
    with pytest.raises(OptionInvalid) as caught:
        read(text.encode(), file)
    return str(caught.value).splitlines()


def test_what_a_file_leaves_out_has_defaults() -> None:
    """All tables, the target's own mode, and a directory with the pipeline's name."""
    found = described()
    assert (found.name, found.engine, found.tables, found.keys) == ("shop", "embedded", ("*",), {})
    assert found.state == "/var/lib/canal-ha/pipelines/shop"
    assert (found.target.kind, found.target.mode, found.target.evolve) == ("http", "events", "evolve")
    assert found.target.options == {"url": "http://127.0.0.1:8080/rows"}
    assert found.source == {"servers": "localhost:11111", "destination": "example"}


def test_a_key_with_a_column_twice_was_accepted() -> None:
    """Columns count in any case."""
    found = problems(f"{FILE}keys: {{shop.log: [k, v, K], shop.a: [id]}}\n")
    assert found == ["shop.yaml:5: keys.shop.log: K is given twice"]


@pytest.mark.parametrize(
    ("rest", "idle"),
    [
        ("tables: [shop.*]\nkeys: {shop.a: k}", {}),
        ("keys: {shop.a: k}", {}),
        ("tables: [shop.*]\nkeys: {Shop.A: k, other.a: k}", {"Shop.A": "letter case", "other.a": "not include"}),
        ("tables: [s.a]\nkeys: {s.a: k}\ntransforms: [rename: {tables: s.a, to: s.b}]", {"s.a": "another name"}),
        ("tables: [s.a]\nkeys: {s.b: k}\ntransforms: [rename: {tables: s.a, to: s.b}]", {}),
        (
            "tables: [s.a*]\nkeys: {all.a: k, al.a: k}\ntransforms: [route: {match: 's[.](.)[0-9]', to: 'all.\\1'}]",
            {"al.a": "not include"},
        ),
        (
            "tables: [s.*]\nkeys: {s.a1: k, s.a: k, s.b: k}\n"
            "transforms: [route: {match: 's[.]a[0-9]', to: s.a, merge: true}]",
            {"s.a1": "another name"},
        ),
    ],
)
def test_a_key_of_a_table_that_no_pipeline_writes_was_accepted(rest: str, idle: dict[str, str]) -> None:
    """A name with a mistake gave no table a key."""
    found = dict(idle_keys(described(rest)))
    assert found.keys() == idle.keys()
    assert all(idle[table] in why for table, why in found.items())


def test_lists_and_numbers_of_the_source_become_options() -> None:
    """The parser of the options takes texts."""
    source = "{zkServers: 'a:1,b:2', destination: [x, 'y*'], clientId: 7, tls: true, snapshot: initial}"
    found = read(FILE.replace('{servers: "localhost:11111", destination: example}', source).encode(), "f.yaml")
    assert found.source == {
        "zkServers": "a:1,b:2",
        "destination": "x,y*",
        "clientId": "7",
        "tls": "true",
        "snapshot": "initial",
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((word, word) for word in ("no", "No", "on", "off", "yes", "y", "TRUE", "012", "1_000", "22:22", "0x1f")),
        *((word, word) for word in ("2026-01-31", ".5", "1.", "+1", "1e", "nan", ".inf", "9" * 19)),
        *((word, None) for word in ("", "~", "null")),
        ("true", True),
        ("false", False),
        ("-7", -7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
    ],
)
def test_only_words_and_numbers_of_json_are_no_texts(text: str, value: object) -> None:
    """YAML 1.1 would read `no` as false and 012 as ten."""
    found = scalar(text)
    assert found == value
    assert type(found) is type(value)


def test_a_table_can_have_the_name_of_a_boolean() -> None:
    """Keys and values are texts."""
    found = described("tables: [no.on, y.true, 1.2.3]\nkeys: {shop.no: [yes, no], off.true: on}\n")
    assert found.tables == ("no.on", "y.true", "1.2.3")
    assert found.keys == {"shop.no": ("yes", "no"), "off.true": ("on",)}


def test_a_number_where_a_text_is_expected_needs_quotes() -> None:
    """The error says so, with the line of the key."""
    assert problems(f"{FILE}tables:\n- shop.a\n- 1.5\n") == [
        "shop.yaml:7: tables[2]: expected schema.table, or a pattern as shop.*; put the value in quotes"
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tabels: []", "shop.yaml:5: tabels is unknown; did you mean tables?"),
        ("clientId: 5", "shop.yaml:5: clientId is unknown; it belongs under source"),
        ("url: x", "shop.yaml:5: url is unknown; it belongs under target"),
        ("tables: []", "shop.yaml:5: tables: expected one schema.table, one pattern as shop.* or a list, not empty"),
        ("tables: [orders]", "shop.yaml:5: tables[1]: expected schema.table, or a pattern as shop.*"),
        ("keys: {log: [id]}", "shop.yaml:5: keys: expected schema.table without wildcards as key, not log"),
        ("keys: {a.b: [1]}", "shop.yaml:5: keys.a.b[1]: expected one column, without commas; put the value in quotes"),
        (
            "transforms:\n- drop: {columns: a}\n  mask: {columns: b}",
            "shop.yaml:6: transforms[1]: expected exactly one of drop, mask, hash, rename, cast and route;"
            " begin another item with `-` for each",
        ),
        ("transforms:\n- dropp: {columns: a}", "shop.yaml:6: transforms[1].dropp is unknown; did you mean drop?"),
        (
            "transforms:\n- rename: {tables: a.b}",
            "shop.yaml:6: transforms[1].rename: expected exactly one of columns and to",
        ),
        (
            "transforms:\n- drop: {}",
            "shop.yaml:6: transforms[1].drop.columns is missing: expected one column or a list",
        ),
        (
            "transforms:\n- drop: {columns: a}\n- route: {match: '(', to: a.b}",
            "shop.yaml:7: transforms[2].route.match: expected a regular expression of RE2: missing ): (",
        ),
        ("spark: {trigger: often}", "expected an interval as '10 seconds', or 'available-now', as 1 second"),
        ("name: again", "shop.yaml:5: name is there twice, first in line 1"),
    ],
)
def test_an_error_names_line_and_key_and_what_is_expected(text: str, says: str) -> None:
    """One line for each mistake, with the nearest key."""
    [line] = problems(FILE + text)
    assert line.endswith(says)


def test_a_target_has_its_own_keys() -> None:
    """An unknown type names those that exist; an unknown key the nearest of this type."""
    head = "name: a\nsource: {servers: 'a:1', destination: d}\n"
    types = schema.expected({"enum": list(schema.targets())})
    assert problems(head + "target: {type: htp, url: x}") == [
        f"shop.yaml:3: target.type = htp: expected {types}; did you mean http?"
    ]
    assert problems(head + "target:\n  type: http\n  ulr: http://x") == [
        "shop.yaml:3: target.url is missing: expected a text that matches ^https?://",
        "shop.yaml:5: target.ulr is unknown; did you mean url?",
    ]
    assert problems(head + "target: {type: http, url: 'http://a', mode: mirror}") == [
        "shop.yaml:3: target.mode = mirror: expected events"
    ]
    assert problems(head + "target: {type: http, url: 'http://a', sslKey: k}") == [
        "shop.yaml:3: target.sslKey needs sslCert too"
    ]


def test_all_mistakes_are_shown_up_to_ten() -> None:
    """In the order of their lines."""
    text = FILE + "".join(f"key{number}: 1\n" for number in range(15))
    lines = problems(text)
    assert [line.split(":")[1] for line in lines[:-1]] == [str(number) for number in range(5, 15)]
    assert lines[-1] == "and 5 more errors"


def test_a_key_is_named_where_its_type_is_wrong() -> None:
    """No value of the file is in the message."""
    text = FILE.replace("destination: example", "destination: example, clientId: 40000, password: 77123")
    assert problems(text) == [
        "shop.yaml:3: source.clientId: expected a whole number, 0 to 32767",
        "shop.yaml:3: source.password: expected a text, as ${env:CANAL_PASSWORD}; put the value in quotes",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tables: shop.a, shop.b", "tables: expected one schema.table, one pattern as shop.* or a list"),
        ("tables: 'shop.* '", "tables: expected one schema.table, one pattern as shop.* or a list"),
        ("tables: [shop.a, 'shop.b,shop.c']", "tables[2]: expected schema.table, or a pattern as shop.*"),
        ("tables: ['shop\\..*']", "tables[1]: expected schema.table, or a pattern as shop.*"),
        ("tables: ['`shop`.`a`']", "tables[1]: expected schema.table, or a pattern as shop.*"),
        ("tables: ['shop.*', '!shop.a']", "tables[2]: expected schema.table, or a pattern as shop.*"),
        ("transforms: [mask: {tables: 'a.b, a.c', columns: x}]", "mask.tables: expected one schema.table, one pattern"),
    ],
)
def test_a_pattern_that_no_table_has_was_accepted_and_its_changes_were_acknowledged(text: str, says: str) -> None:
    """Several tables in one text, canal's regular expressions, quotes of SQL: no row reached the target, silently."""
    [line] = problems(FILE + text)
    assert says in line


@pytest.mark.parametrize("kind", ["drop: {", "mask: {", "hash: {key: k, "])
def test_columns_in_one_text_were_not_hidden(kind: str) -> None:
    """`password, phone` was taken for one column, which no table has."""
    [line] = problems(f"{FILE}transforms: [{kind}columns: 'password, phone'}}]\n")
    assert line.endswith("columns: expected one column or a list")
    [line] = problems(f"{FILE}transforms: [{kind}columns: [a, 'password, phone']}}]\n")
    assert line.endswith("columns[2]: expected one column, without commas")


def test_names_may_have_blanks_and_other_characters() -> None:
    """A question mark stands for those that a pattern cannot have."""
    found = described("tables: [my shop.Ä b, 'shop.a?b']\nkeys: {my shop.Ä b: [first name, '`']}\n")
    assert found.tables == ("my shop.Ä b", "shop.a?b")
    assert found.keys == {"my shop.Ä b": ("first name", "`")}


# ---- secrets


def test_placeholders_are_filled_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's path starts at the pipeline's file. The parser of the source's options fills in its password."""
    (tmp_path / "key").write_text("s3cret\n")
    monkeypatch.setenv("WORD", "hunter2")
    file = tmp_path / "shop.yaml"
    file.write_text(
        FILE.replace("destination: example", "destination: example, password: '${env:WORD}${file:key}'")
        + "transforms:\n- hash: {columns: a, key: '${file:key}'}\n"
    )
    found = load(file)
    assert found.transforms == ({"hash": {"columns": "a", "key": "s3cret"}},)
    assert found.source["password"] == f"${{env:WORD}}${{file:{tmp_path / 'key'}}}"
    assert "s3cret" not in repr(found)
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize("key", ["mode", "evolve", "type", "url"])
def test_what_a_placeholder_gave_is_in_no_error(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the error would name a wrong word."""
    monkeypatch.setenv("WORD", "hunter2")
    text = "name: a\nsource: {servers: 'a:1', destination: d}\ntarget:\n  type: http\n  url: 'http://x'\n"
    lines = [line for line in text.splitlines() if f" {key}:" not in line]
    wrong = problems("\n".join([*lines, f"  {key}: '${{env:WORD}}'"]))
    assert wrong
    assert "hunter2" not in "\n".join(wrong)
    assert any(f"target.{key}: expected" in line for line in wrong)


def test_a_secret_header_was_printed_if_its_file_ended_with_an_empty_line(tmp_path: Path) -> None:
    """The schema's `$` let the line end through, and the error of the request showed the header."""
    (tmp_path / "key").write_text("s3cret\n\n")
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: a\nengine: embedded\nsource: {servers: 'a:1', destination: d}\n"
        "target: {type: http, url: 'http://x', headers: {X-Api-Key: '${file:key}'}}\n"
    )
    with pytest.raises(OptionInvalid, match=r"shop.yaml:4: target.headers.X-Api-Key: expected a text") as caught:
        load(file)
    assert "s3cret" not in str(caught.value)


def test_an_unknown_error_shows_nothing_that_a_placeholder_gave(tmp_path: Path) -> None:
    """Whatever quotes it."""
    (tmp_path / "key").write_text("s3cr\\et\n")
    file = tmp_path / "shop.yaml"
    file.write_text(FILE + "transforms:\n- hash: {columns: a, key: '${file:key}'}\n")
    found, text = load(file), "s3cr\\et"
    for error in (ValueError(text), ValueError(f"Invalid header value {text.encode()!r}"), OSError(2, text)):
        assert "cr" not in found.masked(repr(error))
        assert "***" in found.masked(repr(error))


def test_a_placeholder_without_its_variable_is_one_error() -> None:
    """It names the key and the variable."""
    assert problems(FILE.replace('"http://127.0.0.1:8080/rows"', '"${env:NOT_SET_HERE}"')) == [
        "shop.yaml:4: target.url: expected a variable of the environment: NOT_SET_HERE is not set"
    ]


@pytest.mark.parametrize("text", ["${HASH_KEY}", "x${ENV:HASH_KEY}", "${env:HOME}${key}", "${}"])
def test_a_variable_that_is_no_placeholder_was_the_key_of_hashes(text: str) -> None:
    """Everybody who reads the file knew the key."""
    [line] = problems(f"{FILE}transforms:\n- hash: {{columns: a, key: '{text}'}}\n")
    assert line.startswith("shop.yaml:6: transforms[1].hash.key: expected ${env:NAME} or ${file:PATH}")


def test_expressions_and_settings_of_spark_may_have_variables() -> None:
    """And so may what a placeholder gives."""
    file = FILE.replace("destination: example", "destination: example, filter: 'a${1}'")
    found = read(f"{file}spark: {{settings: {{spark.x: '${{spark.y}}'}}}}\n".encode(), "shop.yaml")
    assert found.source["filter"] == "a${1}"
    assert found.spark["settings"] == {"spark.x": "${spark.y}"}


# ---- texts from strangers


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: !!python/object/apply:os.system [ls]", "1: tags (!name) are not supported"),
        ("a: !!int '3'", "1: tags (!name) are not supported"),
        ("a: &x 1\nb: *x", "1: anchors (&name) are not supported"),
        ("a: *hunter2", "1: aliases (*name) are not supported"),
        ("a: 1\n---\nb: 1", "2: expected one document"),
        ("? [a]\n: b", "1: expected a key, which is a plain text"),
        ("a:\n  b: 1\n  b: 2", "3: b is there twice, first in line 2"),
        ("a: " + "[" * 17 + "]" * 17, "1: expected at most 16 levels"),
        ("a: " + "{b: " * 100_000, "larger than"),
        ("a: '", "1: not valid YAML"),
        ("\ta: b", "1: not valid YAML"),
        ("a: \x07", "not valid YAML: it has a character that no text file has"),
        ("a: " + "x" * MOST_BYTES, f"larger than {MOST_BYTES} bytes"),
        ("", "the file: expected keys and values"),
        ("[]", "the file: expected keys and values"),
        ("7", "the file: expected keys and values"),
    ],
)
def test_what_no_pipeline_needs_is_refused(text: str, says: str) -> None:
    """Nothing is built from tags, and nothing grows by aliases."""
    [line, *_] = problems(text)
    assert says in line
    assert "hunter2" not in line


def test_bytes_that_are_no_utf_8_are_refused_with_their_line() -> None:
    """Line 2 has the first of them."""
    with pytest.raises(OptionInvalid, match=r"^f\.yaml:2: expected UTF-8"):
        YamlText(b"a: 1\nb: \xff", "f.yaml")


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    """It names the file."""
    with pytest.raises(OptionInvalid, match=r"no\.yaml cannot be read: No such file"):
        load(tmp_path / "no.yaml")


KEYS = st.sampled_from(["name", "source", "target", "type", "tables", "a", "no"])
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text("abc no:'\"{}\n☃", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(TREES)
def test_json_is_read_as_json(tree: Any) -> None:
    """JSON is YAML: numbers, words, quotes and escapes mean the same."""
    assert YamlText(json.dumps(tree).encode(), "f").value == tree


@given(TREES)
def test_any_content_is_read_or_refused_with_a_place(tree: Any) -> None:
    """No other exception leaves the reader."""
    assert all(line.startswith(("f.yaml:", "and ")) for line in problems(json.dumps(tree), "f.yaml"))


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    """No other exception leaves the reader."""
    with pytest.raises(OptionInvalid):
        read(raw, "f.yaml")


# ---- the schema


def test_the_schema_is_a_valid_schema() -> None:
    """It is a schema of draft 2020-12 as a whole, with all targets."""
    Draft202012Validator.check_schema(schema.joined())
    assert schema.joined()["properties"]["target"]["properties"]["type"]["enum"] == list(schema.targets())


def test_every_key_has_a_description() -> None:
    """Each key is one sentence or more, which documentation and `pipeline init` show."""

    def bare(place: str, properties: dict[str, Any]) -> list[str]:
        found = []
        for name, each in properties.items():
            each = schema.resolved(each)
            found += [] if name in schema.COMMON or each.get("description") else [f"{place}{name}"]
            found += bare(f"{place}{name}.", each.get("properties", {}))
        return found

    wrong = bare("", dict(schema.joined()["properties"]))
    for kind in schema.targets():
        wrong += bare(f"{kind}.", dict(schema.target_schema(kind)["properties"]))
    assert wrong == []


def test_files_of_secrets_and_certificates_start_at_the_pipelines_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever key names them, wherever the command runs, and on both engines."""
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "word").write_text("hunter2\n")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "made" / "shop.yaml"
    file.write_text(
        "name: shop\nsource: {servers: 'a:1', destination: d, passwordFile: word, tlsCa: ca.pem, tlsKey: /k.pem}\n"
        "target: {type: mysql, address: 'a:1', user: u, password: '${file:word}', sslCa: ca.pem, databases: [x]}\n"
    )
    for found in (load(file), load("made/shop.yaml")):
        assert found.source["passwordFile"] == str(tmp_path / "made" / "word")
        assert found.source["tlsCa"] == found.target.options["sslCa"] == str(tmp_path / "made" / "ca.pem")
        assert found.source["tlsKey"] == "/k.pem"
        assert found.target.options["password"] == "hunter2"
        assert parse({**found.source, "tlsCa": "", "tlsKey": ""}).password == "hunter2"
    file = tmp_path / "made" / "shop.toml"
    file.write_text(
        "name = 'shop'\ncheckpoint = 'c'\ntables = ['x.*']\n[source]\nservers = 'a:1'\ndestination = 'd'\n"
        "spoolDir = 's'\npasswordFile = 'word'\n[[sink]]\ntype = 'mysql'\naddress = 'a:1'\nuser = 'u'\n"
        "passwordFile = 'word'\n"
    )
    old = pipeline_file.load("made/shop.toml")
    assert old.options.password == "hunter2"
    assert [given["passwordFile"] for _, given in old.sinks] == [str(tmp_path / "made" / "word")]


def test_every_key_that_names_a_file_is_known_as_one() -> None:
    """A new key of a target cannot start elsewhere unnoticed."""
    sections = [schema.joined()["properties"]["source"], *map(schema.target_schema, schema.targets())]
    registry = schema.target_schema("kafka")["properties"]["schemaRegistry"]
    for section in [*sections, registry]:
        for key, each in section["properties"].items():
            names_one = str(each.get("description", "")).startswith(("File ", "PEM file "))
            assert names_one == (key.lower() in NAMED), key


@pytest.mark.parametrize("name", ["shop.*", "shop.log_?", "shop.log[0-9]", "*.log"])
def test_a_pattern_under_keys_was_accepted_without_effect(name: str) -> None:
    """Keys are found by the name of a table. No table had this one, and no warning said so."""
    said = "keys: expected schema.table without wildcards as key, not "
    assert problems(f"{FILE}keys: {{'{name}': id}}\n") == [f"shop.yaml:5: {said}{name}"]


@pytest.mark.parametrize(
    ("kind", "key", "word", "expected"),
    [
        ("delta", "mode", "mirro", "one of mirror, scd2 and changelog; did you mean mirror?"),
        ("parquet", "mode", "mirror", "changelog"),
        ("kafka", "mode", "event", "events; did you mean events?"),
        ("parquet", "evolve", "stopp", "one of evolve and stop; did you mean stop?"),
    ],
)
def test_a_wrong_word_of_a_target_had_two_errors_that_contradict_each_other(
    kind: str, key: str, word: str, expected: str
) -> None:
    """One listed what the target can have, the other one what any target can have."""
    options = {"kafka": "servers: 'a:1'"}.get(kind, "path: /lake")
    lines = problems(
        FILE.replace('type: http, url: "http://127.0.0.1:8080/rows"', f"type: {kind}, {key}: {word}, {options}")
    )
    assert lines == [f"shop.yaml:4: target.{key} = {word}: expected {expected}"]
