"""Where values come from and how placeholders resolve."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.config.properties import Layers, Setting, from_environment, from_mapping, from_sets, read
from canal_ha.errors import ConfigError


def layers(*texts: Mapping[str, str]) -> Layers:
    return Layers(
        tuple(
            from_mapping({key: Setting(text, f"layer {n}") for key, text in each.items()})
            for n, each in enumerate(texts)
        )
    )


def found(stack: Layers, key: str) -> str | None:
    setting = stack.find(key)
    return None if setting is None else setting.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("${a}", "1"),
        ("${missing}", ""),
        ("${missing:d}", "d"),
        ("${missing:}", ""),
        ("${blank:d}", "d"),
        ("${a:d}", "1"),
        ("${missing:a:b}", "a:b"),
        ("x${a}y${b}z", "x1y2z"),
        ("${missing:${a}}", "1"),
        ("${missing:${gone:${b}}}", "2"),
        ("${c}", "12"),
        ("${${name}}", "1"),
        ("jdbc:h2:${dir:../conf}/h2;MODE=MYSQL;", "jdbc:h2:../conf/h2;MODE=MYSQL;"),
        ("${open", "${open"),
        ("$ {a} {b}", "$ {a} {b}"),
    ],
)
def test_placeholders_resolve_like_springs(text: str, expected: str) -> None:
    """`${name:default}` is the name's value, else the default, else empty. Both parts can contain placeholders."""
    stack = layers({"a": "1", "b": "2", "c": "${a}${b}", "name": "a", "blank": "", "key": text})
    assert found(stack, "key") == expected


def test_a_value_can_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    """A password stays out of the properties file, the command line and `ps`. The last newline does not count."""
    (tmp_path / "password").write_text("s3:cr}et \n")
    properties = str(tmp_path / "canal.properties")
    settings = {
        "relative": "${file:password}",
        "absolute": f"${{file:{tmp_path}/password}}",
        "named": "${file:${name}}",
        "name": "password",
        "variable": "<${env:SECRET}>",
        "missing": "${env:ABSENT:x:y}",
    }
    stack = Layers((from_mapping({key: Setting(text, properties) for key, text in settings.items()}),), {"SECRET": "x"})
    assert [found(stack, key) for key in ("relative", "absolute", "named")] == ["s3:cr}et"] * 3
    assert found(stack, "variable") == "<x>"
    assert found(stack, "missing") == "x:y"


def test_a_message_does_not_show_what_came_from_a_file(tmp_path: Path) -> None:
    """An invalid value is hidden if it holds text of a file or of the environment, also through another setting."""
    (tmp_path / "password").write_text("s3cret")
    settings = {"direct": "a${file:password}", "through": "b${direct}", "plain": "c"}
    layer = from_mapping({key: Setting(text, str(tmp_path / "canal.properties")) for key, text in settings.items()})
    stack = Layers((layer,))
    for key, shown in (("through", False), ("direct", False), ("plain", True)):
        setting = stack.find(key)
        assert setting is not None
        text = str(setting.refusal(key, "a number"))
        assert "s3cret" not in text
        assert ("***" not in text) is shown


@pytest.mark.parametrize(
    "text", ["<${canal.zookeeper.auth}>", "<${ZK_PASSWORD}>", "<${zk.password}>", "<${mine}>", "${file:${env:ZK}}"]
)
def test_a_message_does_not_show_what_came_from_a_secret_key_or_a_bare_variable(tmp_path: Path, text: str) -> None:
    """A placeholder without `env:` reads the environment too, and it reads secret keys of canal.properties."""
    environ = {"ZK_PASSWORD": "s3cret", "ZK": "s3cret"}
    file = str(tmp_path / "canal.properties")
    settings = {"canal.port": text, "canal.zookeeper.auth": "canal:s3cret", "mine": "${canal.zookeeper.auth}"}
    stack = Layers(
        (from_environment(environ), from_mapping({key: Setting(each, file) for key, each in settings.items()})), environ
    )
    try:
        setting = stack.find("canal.port")
        assert setting is not None
        refused = setting.refusal("canal.port", "a whole number", why=f"{setting.text} is none")
    except ConfigError as error:
        refused = error
    assert "s3cret" not in str(refused)


def test_a_message_about_a_placeholder_does_not_show_what_a_secret_key_has_beside_it(tmp_path: Path) -> None:
    """The value is quoted as it is written, and half of it can be the password itself."""
    stack = layers({"canal.zookeeper.auth": "canal:s3cret${env:ABSENT}", "canal.port": "${canal.zookeeper.auth}"})
    for key in ("canal.zookeeper.auth", "canal.port"):
        with pytest.raises(ConfigError, match="ABSENT is not set") as raised:
            stack.find(key)
        assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${file:absent}", "absent: No such file or directory"),
        ("${file:}", "the name is missing"),
        ("${env}", "the name is missing"),
        ("${file:binary}", "it is not UTF-8"),
        ("${file:large}", "it has more than 65536 bytes"),
        ("${file:pipe}", "pipe is a pipe or a device. Write the text into a file"),
        ("${env:ABSENT}", "ABSENT is not set"),
        ("${file:empty}", "empty: it is empty"),
        ("user:${file:empty}", "empty: it is empty"),
        ("${env:EMPTY}", "EMPTY is empty"),
        ("user:${env:BLANK}", "BLANK is empty"),
    ],
)
def test_a_file_or_variable_that_cannot_be_read_is_named(tmp_path: Path, text: str, reason: str) -> None:
    """The error names the properties file, the key and the reason."""
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "large").write_text("x" * 70_000)
    (tmp_path / "empty").write_text(" \n")
    os.mkfifo(tmp_path / "pipe")
    setting = Setting(text, str(tmp_path / "canal.properties"), 7)
    stack = Layers((from_mapping({"canal.passwd": setting}),), {"EMPTY": "", "BLANK": " "})
    with pytest.raises(ConfigError, match=r"canal\.properties:7.*canal\.passwd") as raised:
        stack.find("canal.passwd")
    assert reason in str(raised.value)


@pytest.mark.parametrize("text", ["${env:EMPTY}", "${file:empty}"])
def test_an_empty_variable_of_a_filter_is_no_filter(tmp_path: Path, text: str) -> None:
    """A compose file hands over `BLACK: ${BLACK:-}`. The node did not start with it."""
    (tmp_path / "empty").write_text(" \n")
    file = str(tmp_path / "canal.properties")
    stack = Layers(
        (
            from_mapping(
                {
                    key: Setting(value, file)
                    for key, value in {
                        "canal.instance.filter.black.regex": text,
                        "canal.register.ip": f"x{text}",
                    }.items()
                }
            ),
        ),
        {"EMPTY": ""},
    )
    assert [found(stack, key) for key in ("canal.instance.filter.black.regex", "canal.register.ip")] == ["", "x"]


@pytest.mark.parametrize("key", [
    "canal.user", "canal.admin.user", "canal.accounts.file", "canal.tls.cert", "canal.tls.ca", "canal.zookeeper.tls",
    "canal.zookeeper.tls.ca", "canal.instance.privacy.key", "canal.instance.privacy.drop",
    "canal.instance.master.sslMode", "canal.instance.tsdb.sslMode", "kafka.sasl.jaas.config",
    "canal.ip", "canal.metrics.pull.bind", "canal.instance.master.trustCertificateKeyStoreUrl",
    "canal.instance.standby1.trustCertificateKeyStoreUrl",
])  # fmt: skip
def test_an_empty_variable_of_what_protects_is_an_error(key: str) -> None:
    """Blank, each of them means less protection. It also counts behind another key."""
    stack = Layers(
        (from_mapping({key: Setting("${my.value}", "f"), "my.value": Setting("${env:EMPTY}", "f")}),), {"EMPTY": ""}
    )
    with pytest.raises(ConfigError, match="EMPTY is empty"):
        stack.find(key)


def test_an_empty_variable_with_a_default_counts_as_missing() -> None:
    """A default says what holds then, also if it is empty."""
    stack = Layers(
        (from_mapping({"key": Setting("<${env:EMPTY:d}>", "f"), "blank": Setting("${env:EMPTY:}", "f")}),),
        {"EMPTY": ""},
    )
    assert [found(stack, key) for key in ("key", "blank")] == ["<d>", ""]


def test_placeholders_that_double_each_time_end_at_once() -> None:
    """Forty settings that name the next one twice would take 2 ** 40 steps, and as many characters."""
    for last in ("", "x"):
        stack = layers({f"k{n}": f"${{k{n + 1}}}${{k{n + 1}}}" for n in range(40)} | {"k40": last})
        if last:
            with pytest.raises(ConfigError, match="65536 characters"):
                stack.find("k0")
        else:
            assert found(stack, "k0") == ""


def test_the_first_layer_that_is_not_blank_wins() -> None:
    """A blank value counts as missing in its layer."""
    stack = layers({"k": ""}, {"k": "second"}, {"k": "third"})
    assert stack.find("k") == Setting("second", "layer 1")
    assert stack.find("other") is None


def test_a_placeholder_looks_in_all_layers() -> None:
    """A placeholder in a weak layer takes the value of a stronger layer."""
    stack = layers({"host": "strong"}, {"address": "${host}:3306", "host": "weak"})
    assert found(stack, "address") == "strong:3306"


@pytest.mark.parametrize("values", [{"a": "${a}"}, {"a": "${b}", "b": "x${a:1}"}])
def test_a_circle_is_an_error(values: dict[str, str]) -> None:
    """Placeholders that refer to each other in a circle are refused with the key."""
    with pytest.raises(ConfigError, match="does not refer to itself"):
        layers(values).find("a")


@pytest.mark.parametrize("text", ["${a:" * 1100 + "}" * 1100, "${a:}" * 1100])
def test_placeholders_without_end_are_an_error(text: str) -> None:
    """Thousands of placeholders, nested or in a row, are refused with the key; the resolver does not fail."""
    stack = layers({"key": text})
    with pytest.raises(ConfigError, match=r"key = .*fewer placeholders"):
        stack.find("key")
    with pytest.raises(ConfigError, match="fewer placeholders"):
        stack.resolve(Setting(text, "file", 3), "key")


@given(st.text(alphabet="${}:key ", max_size=30))
def test_any_text_resolves_or_is_refused(text: str) -> None:
    """No text of placeholder characters makes the resolver hang, or fail in another way."""
    with suppress(ConfigError):
        assert found(layers({"key": text, "a": "1"}), "key") is not None or not text


def test_environment_names() -> None:
    """The identical name comes before the upper-case one. Service links of Kubernetes are ignored."""
    lookup = from_environment({"canal.port": "1", "CANAL_PORT": "2", "CANAL_IP": " ::1 ", "CANAL_ZKSERVERS": "z:1"})
    assert lookup("canal.port") == Setting("1", "environment canal.port")
    assert lookup("canal.ip") == Setting("::1", "environment CANAL_IP")
    assert lookup("canal.zkServers") == Setting("z:1", "environment CANAL_ZKSERVERS")
    assert lookup("canal.user") is None
    assert from_environment({"CANAL_PORT": "tcp://10.0.0.1:11111"})("canal.port") is None


def test_set_arguments() -> None:
    """`key=value` is accepted, also with `=` in the value; the last one of a key wins. Anything else is refused."""
    assert from_sets(["a=1", "b=x=y", "a = 2"]) == {"a": Setting("2", "--set"), "b": Setting("x=y", "--set")}
    for bad in ("a", "=1", " = 1"):
        with pytest.raises(ConfigError):
            from_sets([bad])


def test_files_are_read_as_java_reads_them(tmp_path: Path) -> None:
    """Separators, continuation, escapes and comments follow java.util.Properties; settings remember their line."""
    path = tmp_path / "x.properties"
    path.write_bytes(b"# c\r\n a = 1 \r\n! c\nb:x\\\n  y\nc=.*\\\\..*\n\nd\ne=\\u00e9\na=2\n")
    settings = read(path)
    assert {key: setting.text for key, setting in settings.items()} == {
        "a": "2", "b": "xy", "c": r".*\..*", "d": "", "e": "é",
    }  # fmt: skip
    assert settings["c"].origin == f"{path}:6"
    assert settings["a"].origin == f"{path}:10"


@pytest.mark.parametrize("raw", ["é=ü".encode(), "\ufeffé=ü".encode(), "é=ü".encode("latin-1")])
def test_both_encodings(tmp_path: Path, raw: bytes) -> None:
    """UTF-8, with or without a byte order mark, and Java's Latin-1 are understood."""
    path = tmp_path / "x.properties"
    path.write_bytes(raw)
    assert [(key, setting.text) for key, setting in read(path).items()] == [("é", "ü")]


def test_what_is_no_properties_file(tmp_path: Path) -> None:
    """A missing file and a broken escape raise an error with the file, and the line."""
    with pytest.raises(ConfigError, match="No such file"):
        read(tmp_path / "gone")
    path = tmp_path / "x.properties"
    path.write_text("a=1\nb=\\u12\n")
    with pytest.raises(ConfigError, match=r"x.properties:2: .*hexadecimal"):
        read(path)
    path.write_text("a=1\nb=\\ud83d\\ude00\nc=\\ud800\n")
    with pytest.raises(ConfigError, match=r"x.properties:3: \\ud800 is half a character"):
        read(path)
