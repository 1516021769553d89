"""A node's configuration, read from its files."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from canal_ha.config.effective import secrets_of
from canal_ha.config.load import load, load_instance, load_usable
from canal_ha.config.model import BatchMode, CanalConfig, CursorPlace, FilterMode, LocalFiles, WhenLost
from canal_ha.decode.filters import TableFilter
from canal_ha.errors import ConfigError

STOCK = Path(__file__).parent / "stock"
SHIPPED = Path(__file__).parents[2] / "conf"
DEFAULT_INSTANCE = "canal.instance.global.spring.xml=classpath:spring/default-instance.xml"


def write(directory: Path, main: str = "", **instances: str) -> Path:
    """Write a conf directory, and return it. An instance without a master address gets one."""
    conf = directory / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "canal.properties").write_text(main)
    for name, text in instances.items():
        (conf / name).mkdir(exist_ok=True)
        address = "" if "master.address" in text else "canal.instance.master.address=db:3306\n"
        (conf / name / "instance.properties").write_text(address + text)
    return conf


def one(conf: Path, *sets: str, **environ: str) -> CanalConfig:
    return load(conf, ["canal.destinations=a", *sets], environ)


def test_canals_stock_files_load_unchanged() -> None:
    """canal's own files give canal's settings. A warning names the queues that are not supported here."""
    config = load(STOCK, [], {})
    assert (config.port, config.metrics_port, config.zk_servers, config.auto_scan) == (11111, 11112, "", True)
    (instance,) = config.destinations
    assert instance.destination == "example"
    assert (instance.master.host, instance.master.port, instance.master.position) == ("127.0.0.1", 3306, 0)
    assert instance.standby is None
    assert instance.cursor_place is CursorPlace.FILE
    assert (instance.filter_regex, instance.filter_black_regex) == (r".*\..*", r"mysql\.slave_.*")
    assert instance.binlog_formats == ("ROW", "STATEMENT", "MIXED")
    assert instance.detecting_interval_s == 3.0
    assert instance.tsdb_url == ""
    assert instance.decode.table_history
    assert instance.data_dir == STOCK
    assert config.log_dir == STOCK.parent / "logs"
    notes = [warning.split(": ")[1].split(",")[0] for warning in config.warnings]
    assert notes == ["RocketMQ"]
    assert "rocketmq.namesrv.addr" in config.warnings[0]
    assert (config.admin_port, config.admin_user, config.admin_passwd) == (11110, "admin", "")
    assert instance.queue is None


def test_the_shipped_files_load_without_a_warning() -> None:
    """The shipped files cause no warning. Cursors are in files until canal.zkServers is set."""
    config = load(SHIPPED, [], {})
    assert config.warnings == ()
    assert [instance.cursor_place for instance in config.destinations] == [CursorPlace.FILE]
    clustered = load(SHIPPED, ["canal.zkServers=z1:2181,z2:2181/canal"], {})
    assert [instance.cursor_place for instance in clustered.destinations] == [CursorPlace.ZOOKEEPER]
    assert clustered.zk_servers == "z1:2181,z2:2181/canal"


def test_file_cursors_with_zookeeper_are_refused_with_the_line_to_change() -> None:
    """canal's stock mode loses rows at the first fail-over. The error names file, line, key and the right value."""
    with pytest.raises(ConfigError) as refusal:
        load(STOCK, ["canal.zkServers=127.0.0.1:2181"], {})
    assert (refusal.value.file, refusal.value.line) == (f"{STOCK}/canal.properties", 69)
    assert refusal.value.key == "canal.instance.global.spring.xml"
    assert refusal.value.value == "classpath:spring/file-instance.xml"
    assert refusal.value.expected.startswith("classpath:spring/default-instance.xml, because canal.zkServers is set")
    load(STOCK, ["canal.zkServers=127.0.0.1:2181", DEFAULT_INSTANCE], {})


def test_one_destination_can_have_its_own_template(tmp_path: Path) -> None:
    """canal.instance.{d}.spring.xml and .lazy override the global ones, for the refusal too."""
    main = (
        "canal.destinations=a,b\ncanal.zkServers=z:2181\n"
        "canal.instance.b.spring.xml=classpath:spring/memory-instance.xml\ncanal.instance.b.lazy=true\n"
    )
    conf = write(tmp_path, main, a="", b="")
    config = load(conf, [], {})
    a, b = config.destinations
    assert (a.cursor_place, a.lazy, a.decode.table_history) == (CursorPlace.ZOOKEEPER, False, True)
    assert (b.cursor_place, b.lazy, b.decode.table_history) == (CursorPlace.MEMORY, True, False)
    assert [warning for warning in config.warnings if "memory only" in warning]
    with pytest.raises(ConfigError, match=r"canal.instance.a.spring.xml = 'file-instance.xml': expected .*default"):
        load(conf, ["canal.instance.a.spring.xml=file-instance.xml"], {})


def test_the_order_of_places(tmp_path: Path) -> None:
    """--set overrides the environment, then come the instance's file, canal.properties and the default."""
    conf = write(tmp_path, "canal.instance.dbUsername=main\ncanal.instance.dbPassword=main", a="")
    assert one(conf).destinations[0].username == "main"
    write(tmp_path, "canal.instance.dbUsername=main", a="canal.instance.dbUsername=own\n")
    assert one(conf).destinations[0].username == "own"
    environ = {"CANAL_INSTANCE_DBUSERNAME": "env"}
    assert one(conf, **environ).destinations[0].username == "env"
    environ["canal.instance.dbUsername"] = "exact"
    assert one(conf, **environ).destinations[0].username == "exact"
    assert one(conf, "canal.instance.dbUsername=set", **environ).destinations[0].username == "set"
    assert one(conf).destinations[0].password == "canal"


def test_an_instance_sees_its_own_name(tmp_path: Path) -> None:
    """In placeholders, canal.instance.destination is the name of the destination."""
    conf = write(tmp_path, a="canal.instance.master.address=${canal.instance.destination}.db.${zone:eu}:3307\n")
    assert one(conf).destinations[0].master.host == "a.db.eu"
    assert one(conf, zone="us").destinations[0].master.host == "a.db.us"


def test_every_value_arrives(tmp_path: Path) -> None:
    """Values other than the defaults reach their fields in the right units."""
    text = """
canal.instance.master.address=[::1]:3307
canal.instance.master.journal.name=mysql-bin.000007
canal.instance.master.position=4711
canal.instance.master.timestamp=1507701904000
canal.instance.master.gtid=0-1-2
canal.instance.standby.address=standby
canal.instance.gtidon=TRUE
canal.instance.mysql.slaveId=1234
canal.instance.connectionCharset=UTF8MB4
canal.instance.memory.batch.mode=itemsize
canal.instance.filter.client.mode=and
canal.instance.stream.idle=0.5
canal.instance.stream.max=3
canal.instance.filter.query.ddl=true
canal.instance.filter.field=s.t:a/b, s.u:c
canal.instance.binlog.format=row
canal.instance.tsdb.url=jdbc:mysql://db:3306/tsdb
canal.instance.tsdb.dir=/var/lib/canal
canal.file.data.dir=../conf/data
canal.auto.reset.latest.pos.mode=true
"""
    conf = write(tmp_path, a=text)
    config = one(
        conf,
        "canal.port=0",
        "canal.ip=10.0.0.1",
        "canal.zookeeper.session.timeout=2000",
        "canal.user=canal",
        "canal.passwd=*E3619321C1A937C46A0D8BD1DAC39F93B27D4458",
        "canal.admin.http.port=-1",
        "canal.max.frame.bytes=65536",
        "canal.log.format=JSON",
        "canal.log.dir=/var/log/canal",
        "canal.auto.scan.interval=0.5",
    )
    assert (config.ip, config.port, config.zk_session_timeout_ms, config.user) == ("10.0.0.1", 0, 2000, "canal")
    assert config.passwd == "e3619321c1a937c46a0d8bd1dac39f93b27d4458"
    assert (config.admin_http_port, config.max_frame_bytes, config.log_format) == (-1, 65536, "json")
    assert (config.log_dir, config.auto_scan_interval_s) == (Path("/var/log/canal"), 0.5)
    (a,) = config.destinations
    assert (a.master.host, a.master.port, a.master.journal, a.master.position) == (
        "::1",
        3307,
        "mysql-bin.000007",
        4711,
    )
    assert (a.master.timestamp_ms, a.master.gtid) == (1507701904000, "0-1-2")
    assert a.standby is not None
    assert (a.standby.host, a.standby.port) == ("standby", 3306)
    assert (a.decode.gtid_on, a.server_id, a.decode.charset, a.batch_mode) == (True, 1234, "utf-8", BatchMode.ITEMSIZE)
    assert (a.filter_client_mode, a.stream_idle_s, a.stream_max) == (FilterMode.AND, 0.5, 3)
    assert (a.decode.filter_query_ddl, a.decode.field_filter, a.binlog_formats) == (True, "s.t:a/b, s.u:c", ("ROW",))
    assert (a.tsdb_url, a.tsdb_dir) == ("jdbc:mysql://db:3306/tsdb", "/var/lib/canal")
    assert (a.data_dir, a.position_lost) == (conf / "data", WhenLost.LATEST)
    assert a.stamp is not None
    assert a.stamp.modified_ns == (conf / "a/instance.properties").stat().st_mtime_ns
    assert [text.partition(": ")[0] for text in config.warnings] == ["--set canal.passwd"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("canal.port=70000", "a whole number from 0 to 65535"),
        ("canal.port=1_1", "a whole number"),
        ("canal.metrics.pull.port=x", "a whole number"),
        ("canal.serverMode=rocketMQ", "tcp or kafka. For RocketMQ, RabbitMQ and Pulsar, set tcp and run a pipeline"),
        ("canal.log.format=xml", "text or json"),
        ("canal.zkServers=a:b:c", "host:port,host:port"),
        ("canal.zkServers=,", "host:port,host:port"),
        ("canal.destinations=a/b", "without blanks and slashes"),
        ("canal.destinations=..", "without blanks and slashes"),
        ("canal.destinations=a\x7f", "without blanks and slashes"),
        ("canal.destinations=" + "字" * 43, "at most 128 bytes"),
        ("canal.destinations.expr=a{3-1}", "prefix{1-32}"),
        ("canal.instance.global.spring.xml=classpath:spring/other-instance.xml", "group-instance.xml"),
        ("canal.instance.master.address=db:", "host:port or [IPv6 address]:port"),
        ("canal.instance.master.address=db:0", "host:port"),
        ("canal.instance.master.position=-1", "a whole number from 0"),
        ("canal.instance.gtidon=maybe", "true or false"),
        ("canal.instance.memory.batch.mode=BOTH", "ITEMSIZE or MEMSIZE"),
        ("canal.instance.memory.buffer.size=0", "a whole number from 1"),
        ("canal.instance.snapshot.connections=17", "a whole number from 1 to 16"),
        ("canal.instance.snapshot.rowsPerSecond=-1", "a whole number from 0"),
        ("canal.instance.snapshot.executionTime=-1", "a number of at least 0"),
        ("canal.instance.connectionCharset=klingon", "a character set"),
        ("canal.instance.connectionCharset=hex", "a character set"),
        ("canal.instance.binlog.image=FULL,HALF", "FULL, MINIMAL, NOBLOB"),
        ("canal.instance.stream.idle=-1", "a number of at least 0"),
        ("canal.instance.tsdb.url=jdbc:oracle:x", "jdbc:mysql://"),
        ("canal.instance.master.sslMode=SOME", "VERIFY_CA"),
        ("canal.instance.filter.black.field=users:password", "schema.table:column/column"),
        ("canal.instance.filter.field=s.t:a/,s.u:b", "schema.table:column/column"),
        ("canal.instance.privacy.mask=users:password", r"schema\.table:column/column"),
        ("canal.instance.privacy.drop=s.t:a/,s.u:b", r"schema\.table:column/column"),
    ],
)
def test_bad_values_are_named(tmp_path: Path, setting: str, expected: str) -> None:
    """A value that cannot be used raises ConfigError with place, key, value and what was expected."""
    key, _, value = setting.partition("=")
    with pytest.raises(ConfigError) as error:
        one(write(tmp_path, a=""), setting)
    assert (error.value.file, error.value.key, error.value.value) == ("--set", key, value)
    assert expected in error.value.expected


def test_bad_values_in_files_are_named_with_their_line(tmp_path: Path) -> None:
    """The error has the file and line of the value, or the name of the environment variable."""
    conf = write(tmp_path, "canal.destinations=a\n\ncanal.port = eleven\n", a="")
    with pytest.raises(ConfigError, match=rf"{conf}/canal.properties:3: canal.port = 'eleven': expected"):
        load(conf, [], {})
    with pytest.raises(ConfigError, match=r"environment CANAL_PORT: canal\.port"):
        load(conf, [], {"CANAL_PORT": "x"})


def test_hashed_columns_need_a_long_key_which_is_never_shown(tmp_path: Path) -> None:
    """The key can stand in a file of its own, and for all destinations."""
    hashes = "canal.instance.privacy.hash = s\\\\..*:email\n"
    with pytest.raises(ConfigError, match=r"canal\.instance\.privacy\.key.*at least 16 characters") as error:
        one(write(tmp_path, a=hashes))
    with pytest.raises(ConfigError, match="at least 16 characters") as error:
        one(write(tmp_path, a=hashes + "canal.instance.privacy.key = hush-hush\n"))
    assert "hush-hush" not in str(error.value)
    conf = write(tmp_path, "canal.destinations = a\ncanal.instance.privacy.key = ${file:key}\n", a=hashes)
    (conf / "key").write_text("0123456789abcdef\n")
    decode = load(conf, [], {}).destinations[0].decode
    assert (decode.privacy_hash, decode.privacy_key) == (r"s\..*:email", "0123456789abcdef")
    assert "0123456789abcdef" not in repr(decode)


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    """A refused password is not in the error, and no password is in the printed configuration."""
    with pytest.raises(ConfigError) as error:
        one(write(tmp_path, a="canal.instance.dbPassword=hush\n"), "canal.passwd=plain-secret")
    assert "plain-secret" not in str(error.value)
    assert "SHA1(SHA1(password))" in str(error.value)
    shown = repr(one(tmp_path / "conf", "canal.zookeeper.auth=u:hush", "canal.instance.tsdb.dbPassword=hush"))
    assert "hush" not in shown


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("filter.regex", "(${file:secret}"),
        ("filter.black.regex", "(${env:SECRET}"),
        ("privacy.drop", "(a\\\\.${file:secret}:b"),
        ("privacy.mask", "(a\\\\.${SECRET}:b"),
        ("gtidon", "${canal.zookeeper.auth}"),
    ],
)
def test_a_reason_does_not_quote_a_value_of_a_placeholder(tmp_path: Path, key: str, text: str) -> None:
    """The value itself was hidden; the reason behind it said what is wrong with 'S3cret'."""
    main = "canal.ip = 127.0.0.1\ncanal.zookeeper.auth = canal:S3cret\n"
    conf = write(tmp_path, f"{main}canal.destinations = a\n", a=f"canal.instance.{key} = {text}\n")
    (conf / "a" / "secret").write_text("S3cret")
    [refused] = load_usable(conf, [], {"SECRET": "S3cret"}, partial(TableFilter, exclude="")).refused
    assert refused.error.key == f"canal.instance.{key}"
    assert "***" in str(refused.error)
    assert "S3cret" not in str(refused.error)


def test_a_filter_that_is_written_in_the_file_is_quoted_with_the_reason(tmp_path: Path) -> None:
    """A value that is nobody's secret is shown, with what is wrong with it."""
    conf = write(tmp_path, "canal.ip = 127.0.0.1\ncanal.destinations = a\n", a="canal.instance.filter.regex = (shop\n")
    [refused] = load_usable(conf, [], {}, partial(TableFilter, exclude="")).refused
    assert "expected a list of regular expressions (table filter '(shop' is not" in str(refused.error)


@pytest.mark.parametrize("key", ["canal.accounts.file", "canal.alarm.file", "canal.tls.cert", "canal.zookeeper.tls.ca"])
def test_the_text_of_a_file_instead_of_its_path_is_not_quoted(tmp_path: Path, key: str) -> None:
    """`${file:PATH}` looks as if it named the file. The error of the missing file had all its lines."""
    conf = write(tmp_path, f"canal.ip = 127.0.0.1\n{key} = ${{file:secrets}}\n")
    (conf / "secrets").write_text("[accounts.a]\ntokens = ['S3cret']\n")
    with pytest.raises(ConfigError, match=r"\*\*\*.*the path of a file") as raised:
        load(conf, [], {})
    assert "S3cret" not in str(raised.value)


@pytest.mark.parametrize(
    "key", ["canal.zookeeper.auth", "canal.zookeeper.auth.before", "canal.zookeeper.sasl", "canal.passwd"]
)
def test_a_node_does_not_start_without_a_protection_whose_secret_file_is_empty(tmp_path: Path, key: str) -> None:
    """An empty secret counted as none: new znodes were open to everybody, or there were no accounts."""
    conf = write(tmp_path, f"canal.ip = 127.0.0.1\n{key} = ${{file:secret}}\n")
    (conf / "secret").write_text("\n")
    with pytest.raises(ConfigError, match=rf"properties:2: {key}.*{conf}/secret: it is empty"):
        load(conf, [], {})


@pytest.mark.parametrize("text", ["canal:", ":", ":secret"])
def test_an_account_of_zookeeper_without_a_password_is_refused(tmp_path: Path, text: str) -> None:
    """Znodes that belong to such an account are open to everybody."""
    for key in ("canal.zookeeper.auth", "canal.zookeeper.sasl"):
        conf = write(tmp_path, f"canal.ip = 127.0.0.1\n{key} = {text}\n")
        with pytest.raises(ConfigError, match=f"{key}.*expected user:password"):
            load(conf, [], {})


def test_an_account_before_needs_the_new_one(tmp_path: Path) -> None:
    """Else a node whose account was forgotten would begin as a stranger. Neither password is shown."""
    write(tmp_path, a="")
    with pytest.raises(ConfigError, match=r"canal\.zookeeper\.auth\.before.*canal\.zookeeper\.auth") as error:
        one(tmp_path / "conf", "canal.zookeeper.auth.before=u:hush")
    assert "hush" not in str(error.value)
    for text in ("somebody", "canal:", ":secret"):
        with pytest.raises(ConfigError, match="user:password, or nobody"):
            one(tmp_path / "conf", "canal.zookeeper.auth=u:new", f"canal.zookeeper.auth.before={text}")
    config = one(tmp_path / "conf", "canal.zookeeper.auth=u:new", "canal.zookeeper.auth.before=u:hush")
    assert config.zk_access.digests == ("u:new", "u:hush")
    assert "hush" not in repr(config)
    assert secrets_of(config) >= {"u:new", "new", "u:hush", "hush"}
    config = one(tmp_path / "conf", "canal.zookeeper.auth=u:new", "canal.zookeeper.auth.before=nobody")
    assert config.zk_access.digests == ("u:new",)
    assert "nobody" not in secrets_of(config)  # a debug bundle hides this word nowhere


def test_a_missing_source_address(tmp_path: Path) -> None:
    """A destination without a file is refused with the name of its file, and the key that it should set."""
    (write(tmp_path) / "a").mkdir()
    with pytest.raises(ConfigError, match=r"a/instance.properties does not exist; canal.instance.master.address"):
        one(tmp_path / "conf")


def test_a_directory_without_configuration(tmp_path: Path) -> None:
    """A wrong --conf is reported as a missing canal.properties."""
    with pytest.raises(ConfigError, match=r"canal.properties: .*No such file"):
        load(tmp_path / "nowhere", [], {})


def test_destinations(tmp_path: Path) -> None:
    """Destinations come from the list or the expression, and with auto scan also from the directory; each once."""
    conf = write(tmp_path, "canal.instance.master.address=db:3306\ncanal.auto.scan=true", b="", c="")
    (conf / "spring").mkdir()

    def names(*sets: str) -> list[str]:
        return [instance.destination for instance in load(conf, sets, {}).destinations]

    assert names() == ["b", "c"]
    assert names("canal.destinations= c , a,,c") == ["c", "a", "b"]
    assert names("canal.destinations=x", "canal.destinations.expr=d{9-11}") == ["d9", "d10", "d11", "b", "c"]
    assert names("canal.auto.scan=false") == []
    shutil.move(conf / "b", tmp_path / "b")
    assert names("canal.conf.dir=../conf/../", "canal.destinations=") == ["b"]


def test_unknown_keys_are_told_by_name(tmp_path: Path) -> None:
    """A warning has a misspelt key, its line and the likely key. Names that placeholders use are known."""
    main = (
        "canal.prot=1\nmy.host=db\ncanal.socketChannel=netty\ncanal.instance.a.mode=manager\nnonsense=1\nempty.one=\n"
    )
    text = "canal.instance.master.address=${my.host}:1\ncanal.port=5\ncanal.instance.rds.accesskey=k\n"
    conf = write(tmp_path, main, a=text + "canal.instance.enableDruid=true\n")
    config = one(conf, "canal.instance.dbPasswrd=x")
    assert [warning.replace(str(conf), "") for warning in config.warnings] == [
        "/canal.properties:1: unknown key canal.prot, did you mean canal.port?",
        "/canal.properties:5: unknown key nonsense",
        "/canal.properties: the canal-admin console does not manage the configuration, it comes from these"
        " files, ignored: canal.instance.a.mode",
        "--set: unknown key canal.instance.dbPasswrd, did you mean canal.instance.dbPassword?",
        "/a/instance.properties:2: canal.port is read from canal.properties only",
        "/a/instance.properties: cloud backups (RDS, OSS) are not supported, ignored: canal.instance.rds.accesskey",
        "/a/instance.properties: druid-encrypted passwords are not supported, set canal.instance.dbPassword in plain"
        " text, ignored: canal.instance.enableDruid",
    ]


def test_a_password_without_a_user_is_told(tmp_path: Path) -> None:
    """A warning says that any user name is accepted; the password is still checked."""
    config = one(write(tmp_path, a=""), "canal.passwd=" + "0" * 40)
    assert any("without canal.user: any user name is accepted" in warning for warning in config.warnings)


def test_a_bad_destination_keeps_the_others_from_nothing(tmp_path: Path) -> None:
    """A bad destination is refused with file and line, also for its table filters.

    A bad key of the node is an error.
    """
    main = "canal.destinations=a,b,c,gone\n"
    good = "canal.instance.master.address=db:3306\n"
    conf = write(tmp_path, main, a=good, b="\n" + good + "canal.instance.stream.max = 0\n", c=good)
    (conf / "c/instance.properties").write_text(good + "canal.instance.filter.black.regex = (\n")

    config = load_usable(conf, (), {}, partial(TableFilter, exclude=""))
    assert [instance.destination for instance in config.destinations] == ["a"]
    assert {each.destination: (each.error.file, each.error.line) for each in config.refused} == {
        "b": (f"{conf}/b/instance.properties", 3),
        "c": (f"{conf}/c/instance.properties", 2),
        "gone": (f"{conf}/gone/instance.properties", 0),
    }
    with pytest.raises(ConfigError, match=r"instance.properties:3: canal.instance.stream.max = '0'"):
        load(conf, (), {})
    with pytest.raises(ConfigError, match=r"--set: canal\.port"):
        load_usable(conf, ("canal.port=x",), {})


def test_a_blank_value_is_named_with_its_line(tmp_path: Path) -> None:
    """The error has the line of the blank address, not the file alone."""
    conf = write(tmp_path, a="\ncanal.instance.master.address =\n")
    with pytest.raises(ConfigError, match=r"a/instance.properties:2: canal.instance.master.address = ''"):
        one(conf)


def test_configurations_are_equal_when_a_destination_does_the_same(tmp_path: Path) -> None:
    """Comments, defaults that are written out, and the time of modification make no difference."""
    conf = write(tmp_path, a="canal.instance.master.address=db:3306\ncanal.instance.stream.max = 16\n")
    config = one(conf)
    write(tmp_path, a="# moved\ncanal.instance.master.address = db\n")
    again, _ = load_instance(config, "a", {})
    assert again == config.destinations[0]
    assert again.stamp != config.destinations[0].stamp
    write(tmp_path, a="canal.instance.master.address = db2\n")
    assert load_instance(config, "a", {})[0] != again


def test_one_destination_is_read_again(tmp_path: Path) -> None:
    """A changed file gives a new configuration with the same --set arguments. A broken one raises ConfigError."""
    conf = write(tmp_path, a="")
    config = one(conf, "canal.instance.dbUsername=set")
    write(tmp_path, a="canal.instance.master.address=other:3306\nnonsense=1\n")
    instance, warnings = load_instance(config, "a", {})
    assert (instance.master.host, instance.username) == ("other", "set")
    assert len(warnings) == 1
    write(tmp_path, a="canal.instance.master.address=:::\n")
    with pytest.raises(ConfigError):
        load_instance(config, "a", {})


def test_relative_paths_are_meant_from_beside_the_directory(tmp_path: Path) -> None:
    """../conf is the given directory, whatever its name. Other relative paths begin at bin/ beside it, as in canal."""
    conf = write(tmp_path, a="").rename(tmp_path / "node1")
    config = one(conf)
    assert config.conf_dir == conf
    assert config.log_dir == tmp_path / "logs"
    assert config.destinations[0].tsdb_dir == str(conf / "a")
    assert one(conf, "canal.log.dir=here").log_dir == tmp_path / "bin/here"


def test_a_directory_instead_of_a_server(tmp_path: Path) -> None:
    """local-instance needs the directory and no address. With another template the directory has no effect."""
    local = "canal.instance.a.spring.xml=classpath:spring/local-instance.xml"
    (write(tmp_path) / "a").mkdir()
    directory = "canal.instance.parser.directory=/backup"
    config = one(tmp_path / "conf", local, directory, "canal.instance.parser.needWait=true")
    (archive,) = config.destinations
    assert archive.local == LocalFiles(Path("/backup"))
    assert (archive.cursor_place, archive.master.host, config.warnings) == (CursorPlace.FILE, "", ())
    (archive,) = one(tmp_path / "conf", local, directory, "canal.zkServers=zk").destinations
    assert archive.cursor_place is CursorPlace.ZOOKEEPER
    with pytest.raises(ConfigError, match=r"canal.instance.parser.directory = '': expected a directory with binlog"):
        one(tmp_path / "conf", local)
    config = one(tmp_path / "conf", directory, "canal.instance.master.address=db")
    assert config.destinations[0].local is None
    assert any("canal.instance.parser.directory has no effect" in warning for warning in config.warnings)


def test_a_secret_on_the_command_line_is_warned_about(tmp_path: Path) -> None:
    """`ps` shows it to every user. The warning does not repeat it."""
    (tmp_path / "canal.properties").write_text("canal.ip = 127.0.0.1\n")
    (tmp_path / "password").write_text("s3cret")
    sets = ["canal.instance.dbPassword=s3cret", f"canal.zookeeper.auth=a:${{file:{tmp_path}/password}}", "canal.port=1"]
    config = load(tmp_path, sets, {})
    [warning] = [text for text in config.warnings if "list of processes" in text]
    assert warning.startswith("--set canal.instance.dbPassword: ")
    assert "s3cret" not in warning
    assert config.zk_access.digest == "a:s3cret"


def test_settings_of_a_program_override_all_others(tmp_path: Path) -> None:
    """They need no file, refer to each other and to the environment, and are reported where they come from."""
    given = {
        "canal.port": "4",
        "canal.destinations": "a,b",
        "canal.instance.master.address": "${host}:1",
        "host": "db",
        "canal.instance.dbPassword": "${env:PASSWORD}",
    }
    environ = {"CANAL_PORT": "3", "CANAL_INSTANCE_DBUSERNAME": "reader", "PASSWORD": "secret"}
    config = load_usable(tmp_path, ["canal.port=2"], environ, given=given)
    assert config.port == 4
    assert config.warnings == ()
    assert [(each.destination, each.master.address) for each in config.destinations] == [("a", "db:1"), ("b", "db:1")]
    conf = write(tmp_path, "canal.port = 1", c="canal.instance.dbUsername = other")
    config = load_usable(conf, [], environ, given=given)
    assert config.port == 4
    c, warnings = load_instance(config, "c", environ, given={"canal.instance.dbUsername": "mine", "canal.typo": "x"})
    assert (c.master.address, c.username, c.password, c.data_dir) == ("db:1", "mine", "secret", conf)
    assert [warning.partition(":")[0] for warning in warnings] == ["settings"]
    with pytest.raises(ConfigError, match=r"^settings: canal\.instance\.master\.address = 'x:y'"):
        load_instance(config, "d", environ, given={"canal.instance.master.address": "x:y"})
    with pytest.raises(ConfigError, match=r"canal\.properties"):
        load_usable(tmp_path, [], environ)
