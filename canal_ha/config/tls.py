"""TLS settings of the node's ports, and towards MySQL: PEM files under our keys, or under canal's keys with type PEM.

There are no Java key stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from canal_ha.config import keys
from canal_ha.config.keys import Key, SourceKeys
from canal_ha.config.listeners import is_loopback
from canal_ha.config.model import GroupMember, InstanceConfig, PortTls, TlsConfig, ZooKeeperAccess
from canal_ha.config.private_keys import UNLOCKED, is_locked
from canal_ha.config.small_files import read_small
from canal_ha.errors import ConfigError

T = TypeVar("T")

_PEM_SUFFIXES = (".pem", ".crt", ".cer", ".key")


class KeyReader(Protocol):
    """The part of the loader's reader that this module needs."""

    def get(self, key: Key[T]) -> T: ...
    def has(self, key: Key[object]) -> bool: ...
    def refusal(self, key: Key[object], expected: str) -> ConfigError: ...


def tls_config(reader: KeyReader, names: SourceKeys, path: Callable[[str], Path]) -> TlsConfig:
    """Return the TLS settings of one source.

    reader: the values of the destination.
    names: the keys of the source.
    path: resolves a relative file name.
    Raises ConfigError for a key store that is not PEM, and for a missing file.
    """
    mode = reader.get(names.ssl_mode)
    if mode == "DISABLED" or not reader.has(names.ssl_mode):  # without a mode, files of unused keys may be missing
        return TlsConfig(mode)
    cert_file = _file(reader, names.ssl_cert, names.client_type, names.client_url, path)
    key_file = _pem(reader, names.ssl_key, reader.get(names.ssl_key), path)
    return TlsConfig(
        mode=mode,
        ca_file=_file(reader, names.ssl_ca, names.trust_type, names.trust_url, path),
        cert_file=cert_file,
        key_file=key_file or cert_file,
    )


def tsdb_tls(reader: KeyReader, path: Callable[[str], Path]) -> TlsConfig:
    """Return the TLS settings of the table history's database; see tls_config."""
    mode = reader.get(keys.TSDB_SSL_MODE)
    if mode == "DISABLED":
        return TlsConfig(mode)
    own = (keys.TSDB_SSL_CA, keys.TSDB_SSL_CERT, keys.TSDB_SSL_KEY)
    ca_file, cert_file, key_file = (_pem(reader, key, reader.get(key), path) for key in own)
    return TlsConfig(mode, ca_file, cert_file, key_file or cert_file)


def unverified(instances: Iterable[InstanceConfig]) -> str:
    """Return the warning about servers on other machines whose certificates are not checked; "" without one."""
    sources = {
        source.host: source.tls
        for instance in instances
        for member in (GroupMember(instance.master, instance.standby), *instance.group)
        for source in (member.master, member.standby)
        if source is not None
    }
    databases = {
        urlsplit(instance.tsdb_url.removeprefix("jdbc:")).hostname or "": instance.tsdb_tls for instance in instances
    }
    hosts = [host for host, tls in (sources | databases).items() if host and not tls.verified and not is_loopback(host)]
    if not hosts:
        return ""
    return (
        f"nobody checks the certificate of {', '.join(hosts[:5])}: whoever is between can read rows and passwords."
        " Set canal.instance.master.sslMode = VERIFY_CA or VERIFY_IDENTITY, and canal.instance.master.ssl.ca"
    )


def zookeeper_access(reader: KeyReader, path: Callable[[str], Path]) -> ZooKeeperAccess:
    """Return how the node reaches ZooKeeper.

    Raises ConfigError for a file that is missing or not PEM, and for an account from before without a new one.
    """
    own = (keys.ZK_TLS_CA, keys.ZK_TLS_CERT, keys.ZK_TLS_KEY)
    ca_file, cert_file, key_file = (_pem(reader, key, reader.get(key), path) for key in own)
    access = ZooKeeperAccess(
        reader.get(keys.ZK_AUTH),
        reader.get(keys.ZK_SASL),
        reader.get(keys.ZK_TLS),
        ca_file,
        cert_file,
        key_file,
        reader.get(keys.ZK_WORLD_READ),
        reader.get(keys.ZK_BEFORE),
    )
    if access.before and not access.named:
        raise reader.refusal(keys.ZK_BEFORE, "canal.zookeeper.auth or canal.zookeeper.sasl beside it")
    return access


def port_tls(reader: KeyReader, path: Callable[[str], Path]) -> PortTls | None:
    """Return the TLS settings of the node's ports; None without a certificate.

    reader: the values of the node.
    path: resolves a relative file name.
    Raises ConfigError for a file that is missing or not PEM.
    """
    cert_file = _pem(reader, keys.TLS_CERT, reader.get(keys.TLS_CERT), path)
    key_file = _pem(reader, keys.TLS_KEY, reader.get(keys.TLS_KEY), path)
    ca_file = _pem(reader, keys.TLS_CA, reader.get(keys.TLS_CA), path)
    ports = reader.get(keys.TLS_PORTS)
    if not cert_file and (key_file or ca_file):
        raise reader.refusal(keys.TLS_CERT, "a PEM file, because canal.tls.key or canal.tls.ca is set")
    return PortTls(cert_file, key_file or cert_file, ca_file, ports) if cert_file else None


def _file(reader: KeyReader, own: Key[str], kind: Key[str], url: Key[str], path: Callable[[str], Path]) -> str:
    """Return the file that our key names, or else the file that canal's URL key names."""
    if reader.get(own):
        return _pem(reader, own, reader.get(own), path)
    name = path_in(reader.get(url))
    store = reader.get(kind).upper()
    if not name:
        return ""
    if store != "PEM" and (store or not name.lower().endswith(_PEM_SUFFIXES)):
        raise reader.refusal(
            kind if store else url,
            f"PEM (Java key stores are not supported): convert the store with keytool -importkeystore to PKCS12 and"
            f" with openssl pkcs12 to PEM, then set {own.name} to the PEM file",
        )
    return _pem(reader, url, name, path)


def path_in(url: str) -> str:
    """Return the path in a value of canal's URL keys, which can also be the path alone."""
    name = url.removeprefix("file:")
    return "/" + name.lstrip("/") if name.startswith("/") else name


def _pem(reader: KeyReader, key: Key[str], name: str, path: Callable[[str], Path]) -> str:
    if not name:
        return ""
    file = path(name)
    try:
        found = read_small(file)
    except OSError as error:
        raise reader.refusal(key, f"a readable PEM file ({error.strerror})") from error
    if b"-----BEGIN" not in found:
        raise reader.refusal(key, "a file in PEM format")
    if is_locked(found):
        raise reader.refusal(key, UNLOCKED)
    return str(file)
