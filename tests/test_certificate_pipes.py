"""A pipe in the place of a PEM file is refused wherever one is named: OpenSSL would wait for its writer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from canal_ha.cli.main import group
from canal_ha.client.http_access import HttpAccess
from canal_ha.client.tls import ClientTls
from canal_ha.config.model import TlsConfig
from canal_ha.pipeline.description import Description, TargetDescription
from canal_ha.pipeline.options import parse
from canal_ha.pipeline.targets import open_target
from canal_ha.pipeline.targets.schema_registry import SchemaRegistry
from canal_ha.source.connection.tls import secured

ANSWERS_AFTER_S = 3  # so that a reader that waits ends, and the test with it
SOURCE = {"servers": "127.0.0.1:1", "destination": "d"}
AT_ZOOKEEPER = {"zkServers": "127.0.0.1:1", "destination": "d"}
SQL = {"address": "127.0.0.1:9", "user": "u", "password": "p", "database": "d"}


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[str]:
    """Yield a pipe. Who waits for its writer finds its end after a while."""
    file = tmp_path / "pipe.pem"
    os.mkfifo(file)
    ends = f"sleep {ANSWERS_AFTER_S}; while :; do : >'{file}'; done"
    with subprocess.Popen(["sh", "-c", ends]) as process:  # no thread: a library can wait without releasing the GIL
        yield str(file)
        process.kill()


def opened(kind: str, **options: Any) -> None:
    """Open a target and check it."""
    mode: Any = "events" if kind in ("http", "kafka") else "mirror"
    target = TargetDescription(kind, mode, options=options)
    open_target(Description("p.yaml", "p", "embedded", "unused", ("*",), {}, {}, target)).check()


PLACES: dict[str, Callable[[str], object]] = {
    "authority of nodes": lambda pipe: ClientTls(pipe),
    "certificate of a client": lambda pipe: ClientTls(cert_file=pipe),
    "authority of nodes over HTTP": lambda pipe: HttpAccess(tls_ca=pipe).opener(),
    "certificate of a node over HTTP": lambda pipe: HttpAccess(certificate=pipe).opener(),
    "authority of a server": lambda pipe: secured(TlsConfig("VERIFY_CA", pipe)),
    "authority that is not used": lambda pipe: secured(TlsConfig("REQUIRED", pipe)),
    "certificate for a server": lambda pipe: secured(TlsConfig("PREFERRED", "", pipe, pipe)),
    "source tlsCa": lambda pipe: parse({**SOURCE, "tlsCa": pipe}),
    "source zkTlsCa": lambda pipe: parse({**AT_ZOOKEEPER, "zkTlsCa": pipe}),
    "source zkTlsKey": lambda pipe: parse({**AT_ZOOKEEPER, "zkTlsCert": "a.pem", "zkTlsKey": pipe}),
    "http sslCa": lambda pipe: opened("http", url="https://127.0.0.1:9/", sslCa=pipe),
    "http sslCert": lambda pipe: opened("http", url="https://127.0.0.1:9/", sslCert=pipe),
    "schemaRegistry.ca": lambda pipe: SchemaRegistry("https://127.0.0.1:9", ca=pipe),
    "kafka ssl.ca.location": lambda pipe: opened(
        "kafka", servers="127.0.0.1:9", properties={"security.protocol": "ssl", "ssl.ca.location": pipe}
    ),
    "kafka ssl.key.location": lambda pipe: opened(
        "kafka", servers="127.0.0.1:9", properties={"security.protocol": "ssl", "ssl.key.location": pipe}
    ),
    "mysql sslCa": lambda pipe: opened("mysql", **SQL, sslCa=pipe),
    "postgresql sslCa": lambda pipe: opened("postgresql", **SQL, schema="c_{schema}", sslCa=pipe),
    "postgresql sslKey": lambda pipe: opened("postgresql", **SQL, schema="c_{schema}", sslKey=pipe),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_pipe_in_the_place_of_a_certificate_held_the_process(pipe: str, place: str) -> None:
    """The error names the file and what is wrong with it."""
    with pytest.raises(Exception, match="not a regular file") as found:
        PLACES[place](pipe)
    assert pipe in str(found.value)


def test_a_command_with_a_pipe_for_the_authority_of_zookeeper_waited(pipe: str) -> None:
    """kazoo opened it in each connection."""
    result = CliRunner().invoke(group, ["status", "--zk", "127.0.0.1:1", "--zk-tls-ca", pipe])
    assert "not a regular file" in f"{result.output}{result.exception}"


def test_a_pipe_that_has_replaced_a_certificate_held_the_next_connection(pipe: str, tmp_path: Path) -> None:
    """The files are read for each connection."""
    tls = ClientTls(str(tmp_path / "later.pem"))
    os.symlink(pipe, tls.ca_file)
    with pytest.raises(OSError, match="not a regular file"):
        tls.context()
