"""The source on a cluster whose nodes want TLS and an account."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canal_ha.wire.scramble import secret_of
from lab import MariaDB, Node, ZooKeeper, follow
from lab.certificates import Authority
from tests.spark.conftest import Stream

pytestmark = pytest.mark.spark


@pytest.mark.nightly("tests/pipeline/test_options.py: what the connector gets; tests/server/test_tls.py: TLS")
def test_a_query_logs_in_over_tls(
    zookeeper: ZooKeeper, mariadb: MariaDB, database: str, stream: Callable[..., Stream], tmp_path: Path
) -> None:
    """Rows arrive for a password from a file and for a certificate; a wrong password ends the query with the reason."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    properties = {
        "canal.user": "shop",
        "canal.passwd": secret_of("geheim").hex(),
        "canal.tls.cert": str(authority.sign("node")),
        "canal.tls.ca": str(clients.file),
    }
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("geheim\n")
    bad.write_text("heimlich\n")
    hosts = f"{zookeeper.hosts}/spark-{database}"
    settings = follow(mariadb, {"canal.instance.filter.regex": rf"{database}\..*"})
    with Node(
        {database: settings}, zk_servers=hosts, properties=properties, wait_for=[database], login=("shop", "geheim")
    ):
        one = stream(zkServers=hosts, destination=database, clientId=7, tlsCa=authority.file)
        by_password: dict[str, Any] = {"user": "shop", "passwordFile": good}
        assert one.run(**by_password) == []  # creates the client id
        by_certificate: dict[str, Any] = {"tlsCert": clients.sign("shop")}
        for number, login in enumerate((by_password, by_certificate)):
            mariadb.execute(f"INSERT INTO {database}.t VALUES ({number})")
            assert [row["key"]["id"] for row in one.run(**login)] == [str(number)]
        with pytest.raises(Exception, match="auth failed for user:shop") as error:
            one.run(**{**by_password, "passwordFile": bad})
        assert "heimlich" not in str(error.value)
