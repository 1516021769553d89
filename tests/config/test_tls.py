"""The configuration of TLS to MySQL."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from canal_ha.config.load import load
from canal_ha.config.model import TlsConfig
from canal_ha.errors import ConfigError


def tls(tmp_path: Path, *sets: str) -> TlsConfig:
    conf = tmp_path / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "canal.properties").write_text("canal.destinations=a\ncanal.instance.master.address=db:1\n")
    return load(conf, [f"canal.instance.master.{item}" for item in sets], {}).destinations[0].master.tls


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\n")
    return path


def test_preferred_by_default(tmp_path: Path) -> None:
    """Without sslMode, TLS is used if the server offers it, whatever files are named."""
    assert tls(tmp_path) == TlsConfig()
    assert tls(tmp_path, "ssl.ca=/gone.pem") == TlsConfig()


def test_pem_files(tmp_path: Path, pem: Path) -> None:
    """PEM files can be given by our keys, or by canal's as PEM. The key may be in the certificate's file."""
    assert tls(tmp_path, "sslMode=required") == TlsConfig("REQUIRED")
    expected = TlsConfig("VERIFY_CA", str(pem), str(pem), str(pem))
    assert tls(tmp_path, "sslMode=VERIFY_CA", f"ssl.ca={pem}", f"ssl.cert={pem}", f"ssl.key={pem}") == expected
    canals = (
        "trustCertificateKeyStoreUrl=file:///",
        "clientCertificateKeyStoreType=pem",
        "clientCertificateKeyStoreUrl=",
    )
    sets = [f"{canals[0]}{str(pem)[1:]}", canals[1], f"{canals[2]}{pem}"]
    assert tls(tmp_path, "sslMode=VERIFY_CA", *sets) == expected
    assert tls(tmp_path, "sslMode=VERIFY_CA", "ssl.ca=../ca.pem").ca_file == str(pem)


@pytest.mark.parametrize("kind", ["pipe", "large", "directory"])
def test_a_pem_file_that_is_no_small_file_is_refused_before_it_is_read(tmp_path: Path, pem: Path, kind: str) -> None:
    """A pipe held a thread for ever, and a device without an end filled the memory."""
    pem.unlink()
    if kind == "large":
        pem.write_bytes(b"-----BEGIN CERTIFICATE-----\n" * 50_000)
    elif kind == "pipe":
        os.mkfifo(pem)
        threading.Timer(5.0, _end_of, (pem,)).start()
    else:
        pem.mkdir()
    reason = {"pipe": "is not a regular file", "large": "more than 1048576 bytes", "directory": "Is a directory"}[kind]
    with pytest.raises(ConfigError, match=f"a readable PEM file .*{reason}"):
        tls(tmp_path, "sslMode=VERIFY_CA", f"ssl.ca={pem}")


def _end_of(pipe: Path) -> None:
    """Let a reader go on that waits for a writer."""
    with suppress(OSError):
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


@pytest.mark.parametrize(
    "sets",
    [
        ("trustCertificateKeyStoreType=JKS", "trustCertificateKeyStoreUrl=file:/x.jks"),
        ("trustCertificateKeyStoreUrl=file:/x.jks",),
        ("clientCertificateKeyStoreType=PKCS12", "clientCertificateKeyStoreUrl=/x.p12"),
    ],
)
def test_java_key_stores_are_refused(tmp_path: Path, sets: tuple[str, ...]) -> None:
    """The error says how to convert the store, and which key names the result."""
    with pytest.raises(ConfigError, match=r"PEM \(Java key stores are not supported\): convert .*\.ssl\.(ca|cert)"):
        tls(tmp_path, "sslMode=VERIFY_CA", *sets)


def test_files_must_be_there_and_pem(tmp_path: Path) -> None:
    """A missing file and a file of another format are errors at start-up, not at the first connection."""
    with pytest.raises(ConfigError, match="No such file"):
        tls(tmp_path, "sslMode=VERIFY_CA", "ssl.ca=/gone.pem")
    (tmp_path / "x.pem").write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(ConfigError, match="a file in PEM format"):
        tls(tmp_path, "sslMode=VERIFY_CA", f"ssl.ca={tmp_path}/x.pem")
