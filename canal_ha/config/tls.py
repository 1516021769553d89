"""TLS settings towards MySQL: PEM files under our keys, or under canal's keys with type PEM. No Java key stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from canal_ha.config.keys import Key, SourceKeys
from canal_ha.config.model import TlsConfig
from canal_ha.errors import ConfigError

T = TypeVar("T")

_PEM_SUFFIXES = (".pem", ".crt", ".cer", ".key")


class KeyReader(Protocol):
    """The part of the loader's reader that this module needs."""

    def get(self, key: Key[T]) -> T: ...
    def refusal(self, key: Key[object], expected: str) -> ConfigError: ...


def tls_config(reader: KeyReader, names: SourceKeys, path: Callable[[str], Path]) -> TlsConfig:
    """Return the TLS settings of one source.

    reader: the values of the destination.
    names: the keys of the source.
    path: resolves a relative file name.
    Raises ConfigError for a key store that is not PEM, and for a missing file.
    """
    mode = reader.get(names.ssl_mode)
    if mode == "DISABLED":
        return TlsConfig()
    cert_file = _file(reader, names.ssl_cert, names.client_type, names.client_url, path)
    key_file = _pem(reader, names.ssl_key, reader.get(names.ssl_key), path)
    return TlsConfig(
        mode=mode,
        ca_file=_file(reader, names.ssl_ca, names.trust_type, names.trust_url, path),
        cert_file=cert_file,
        key_file=key_file or cert_file,
    )


def _file(reader: KeyReader, own: Key[str], kind: Key[str], url: Key[str], path: Callable[[str], Path]) -> str:
    """Return the file that our key names, or else the file that canal's URL key names."""
    if reader.get(own):
        return _pem(reader, own, reader.get(own), path)
    name = reader.get(url).removeprefix("file:")
    store = reader.get(kind).upper()
    if not name:
        return ""
    if store != "PEM" and (store or not name.lower().endswith(_PEM_SUFFIXES)):
        raise reader.refusal(
            kind if store else url,
            f"PEM (Java key stores are not supported): convert the store with keytool -importkeystore to PKCS12 and"
            f" with openssl pkcs12 to PEM, then set {own.name} to the PEM file",
        )
    return _pem(reader, url, "/" + name.lstrip("/") if name.startswith("/") else name, path)


def _pem(reader: KeyReader, key: Key[str], name: str, path: Callable[[str], Path]) -> str:
    if not name:
        return ""
    file = path(name)
    try:
        found = b"-----BEGIN" in file.read_bytes()
    except OSError as error:
        raise reader.refusal(key, f"a readable PEM file ({error.strerror})") from error
    if not found:
        raise reader.refusal(key, "a file in PEM format")
    return str(file)
