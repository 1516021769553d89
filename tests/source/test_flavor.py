"""The facts read from a server's variables, and the settings that are refused with a statement to run."""

import pytest

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.errors import SourceRefused
from canal_ha.source.connection.flavor import check, flavor, parse_version

CONFIG = InstanceConfig(destination="example", master=SourceConfig("db"))
GOOD = {
    "version": "9.7.4",
    "server_id": "7",
    "server_uuid": "3e11fa47-71ca-11e1-9e33-c80aa9429562",
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9.7.4", (9, 7, 4)),
        ("10.11.19-MariaDB-0+deb12u1-log", (10, 11, 19)),
        ("8.0.36-28 Percona", (8, 0, 36)),
        ("8.4", (8, 4, 0)),
        ("?", (0, 0, 0)),
    ],
)
def test_versions(text: str, number: tuple[int, int, int]) -> None:
    """The three numbers of a version are found, whatever a vendor adds."""
    assert parse_version(text) == number


@pytest.mark.parametrize(
    ("version", "status", "replicas"),
    [
        ("5.6.14", "SHOW MASTER STATUS", "SHOW SLAVE HOSTS"),
        ("8.0.36", "SHOW MASTER STATUS", "SHOW REPLICAS"),
        ("8.4.0", "SHOW BINARY LOG STATUS", "SHOW REPLICAS"),
        ("9.7.4", "SHOW BINARY LOG STATUS", "SHOW REPLICAS"),
        ("10.3.1-MariaDB", "SHOW MASTER STATUS", "SHOW SLAVE HOSTS"),
        ("10.11.19-MariaDB", "SHOW BINLOG STATUS", "SHOW REPLICA HOSTS"),
    ],
)
def test_statements_of_a_version(version: str, status: str, replicas: str) -> None:
    """Each version gets the statements that it knows."""
    server = flavor({"version": version})
    assert (server.status_statement, server.replicas_statement) == (status, replicas)


def test_facts() -> None:
    """The server id and uuid are read, and MariaDB is recognized by its version comment."""
    server = flavor(GOOD)
    assert (server.server_id, server.uuid, server.mariadb) == (7, GOOD["server_uuid"], False)
    assert flavor({"version": "10.6.2", "version_comment": "mariadb.org binary distribution"}).mariadb
    check(server, CONFIG, "db:3306")


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("log_bin", "OFF", "log-bin=mysql-bin"),
        ("binlog_format", "STATEMENT", "SET GLOBAL binlog_format = ROW"),
        ("binlog_format", "MIXED", "SET GLOBAL binlog_format = ROW"),
        ("binlog_row_image", "FULL_NODUP", "SET GLOBAL binlog_row_image = FULL"),
    ],
)
def test_refusals_name_the_statement(variable: str, value: str, text: str) -> None:
    """The error names the server and the statement to run, and is retryable."""
    with pytest.raises(SourceRefused, match=text) as raised:
        check(flavor({**GOOD, variable: value}), CONFIG, "db:3306")
    assert str(raised.value).startswith("db:3306: ")
    assert raised.value.retryable


def test_images_by_configuration() -> None:
    """Images that the configuration does not list are refused."""
    only_full = InstanceConfig(destination="example", master=SourceConfig("db"), binlog_images=("FULL",))
    check(flavor(GOOD), only_full, "db:3306")
    with pytest.raises(SourceRefused, match="Unsupported BinlogImage MINIMAL"):
        check(flavor({**GOOD, "binlog_row_image": "MINIMAL"}), only_full, "db:3306")


@pytest.mark.parametrize(
    ("variables", "keeps"),
    [
        ({}, True),
        ({"slave_parallel_workers": "1"}, True),
        ({"slave_parallel_workers": "8"}, False),
        ({"slave_parallel_workers": "8", "slave_preserve_commit_order": "OFF"}, False),
        ({"replica_parallel_workers": "4", "replica_preserve_commit_order": "ON"}, True),
    ],
)
def test_whether_a_replica_keeps_the_order(variables: dict[str, str], keeps: bool) -> None:
    """Only several workers that need not keep the commit order make the order unsure."""
    assert flavor({**GOOD, **variables}).keeps_order is keeps
