"""Certificates: TLS for the node's ports, from PEM files that can be read again. Reactor thread.

Connections keep the certificate that they began with; new ones get the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID
from OpenSSL import SSL
from OpenSSL.crypto import X509
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from zope.interface import implementer

from canal_ha import logs
from canal_ha.config.model import PortTls
from canal_ha.config.small_files import read_small
from canal_ha.errors import FileUnusable

LOG = logs.get(__name__)
_SUBJECT_CHARACTERS = 256  # a line of the audit has room for the reason behind it
CLOCKS_DIFFER = timedelta(minutes=5)  # an authority's clock may be ahead by so much


@implementer(IOpenSSLServerConnectionCreator)
class Certificates:
    """See the module."""

    def __init__(self, files: PortTls, refused: Callable[[str, str], None] = lambda address, reason: None) -> None:
        """Read the files.

        files: PEM files.
        refused: hears of clients whose certificate is refused: their address, and why.
        Raises FileUnusable.
        """
        self._files = files
        self._refused = refused
        self._context = self._read()

    def reload(self) -> FileUnusable | None:
        """Read the files again. If they cannot be used, go on with the old ones and return why."""
        try:
            context, now = self._read(), datetime.now(UTC)
            if _end(context) <= now < _end(self._context):
                raise FileUnusable(self._files.cert_file, f"has a certificate that expired at {_end(context)}")
            if _start(context) > now + CLOCKS_DIFFER >= _start(self._context) and now < _end(self._context):
                raise FileUnusable(self._files.cert_file, f"has a certificate that is valid from {_start(context)} on")
        except FileUnusable as error:
            LOG.error("tls.refused", error=str(error))
            return error
        self._context = context
        LOG.info("tls.reloaded", file=self._files.cert_file)
        return None

    @property
    def expires(self) -> float:
        """When the certificate in use ends, s since 1970. The file may have a newer one, until `reload`."""
        return _end(self._context).timestamp()

    def serverConnectionForTLS(self, protocol: object) -> SSL.Connection:
        """Return a connection with the newest certificate. Twisted calls it."""
        connection = SSL.Connection(self._context, None)
        connection.set_app_data(protocol)
        return connection

    def around(self, factory: Any) -> Any:
        """Return a factory that speaks TLS and passes the bytes inside to `factory`. Twisted types neither."""
        creator: Any = self
        return TLSMemoryBIOFactory(creator, False, factory)

    def _read(self) -> SSL.Context:
        context = _context(self._files)
        if self._files.ca_file:
            # a client without a certificate logs in with a password
            context.set_verify(SSL.VERIFY_PEER, self._verified)
        return context

    def _verified(self, connection: SSL.Connection, certificate: X509, error: int, depth: int, valid: int) -> bool:
        """Accept what OpenSSL accepts of a client's chain. OpenSSL calls it."""
        if not valid:
            host = getattr(connection.get_app_data().transport.getPeer(), "host", "unknown")
            why = _VERIFY_ERRORS.get(error, f"no authority of canal.tls.ca vouches for it (OpenSSL's error {error})")
            self._refused(host, f"the certificate {_short(_subject(certificate))} is refused: {why}")
        return bool(valid)


_VERIFY_ERRORS = {9: "it is not valid yet", 10: "it has expired", 26: "it is not for clients"}


def _subject(certificate: X509) -> str:
    """Return the subject of a certificate that anybody may have made."""
    try:
        return certificate.to_cryptography().subject.rfc4514_string()
    except (ValueError, x509.InvalidVersion):
        return "with an unreadable subject"


def names_of(transport: Any) -> Collection[str]:
    """Return the common name and the DNS names of a client's verified certificate; nothing without one.

    transport: of a connection; TLS or not.
    """
    certificate = _certificate(transport)
    if certificate is None:
        return ()
    names = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    try:
        more = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return names
    return [*names, *more.get_values_for_type(x509.DNSName)]


def subject_of(transport: Any) -> str:
    """Return the subject of a client's verified certificate, as RFC 4514 writes it, or its beginning; "" without one.

    Connections keep it.
    """
    certificate = _certificate(transport)
    return _short(certificate.subject.rfc4514_string()) if certificate else ""


def _short(subject: str) -> str:
    return subject if len(subject) <= _SUBJECT_CHARACTERS else subject[: _SUBJECT_CHARACTERS - 1] + "…"


def _certificate(transport: Any) -> x509.Certificate | None:
    found = transport.getPeerCertificate() if isinstance(transport, TLSMemoryBIOProtocol) else None
    return found.to_cryptography() if found else None


def _start(context: SSL.Context) -> datetime:
    """Return from when on the certificate of a context is valid."""
    return _time(_own(context).get_notBefore())


def _end(context: SSL.Context) -> datetime:
    """Return when the certificate of a context ends."""
    return _time(_own(context).get_notAfter())


def _own(context: SSL.Context) -> X509:
    certificate = SSL.Connection(context, None).get_certificate()
    assert certificate is not None  # no context without one
    return certificate


def _time(text: bytes | None) -> datetime:
    return datetime.strptime((text or b"").decode(), "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _context(files: PortTls) -> SSL.Context:
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION)
    context.set_session_id(b"canal-ha")
    for file in filter(None, (files.cert_file, files.key_file, files.ca_file)):
        _bytes_of(file)  # OpenSSL does not say that a file is missing
    file = files.cert_file
    try:
        context.use_certificate_chain_file(files.cert_file)
        file = files.key_file
        context.use_privatekey(_key(files.key_file))
        context.check_privatekey()
        if files.ca_file:
            file = files.ca_file
            context.load_verify_locations(files.ca_file)
    except SSL.Error as error:
        reason = "; ".join(str(each[-1]) for each in error.args[0]) if error.args else str(error)
        raise FileUnusable(file, f"cannot be used for TLS: {reason or 'not readable'}") from error
    except TypeError as error:
        raise FileUnusable(file, "cannot be used for TLS: its key has another type than RSA or EC") from error
    return context


def _key(file: str) -> Any:
    """Return the key of a PEM file. OpenSSL itself would ask the terminal for the password of a key that has one."""
    try:
        return load_pem_private_key(_bytes_of(file), None)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise FileUnusable(file, f"cannot be used for TLS: {error}") from error


def _bytes_of(file: str) -> bytes:
    try:
        return read_small(Path(file))
    except OSError as error:
        raise FileUnusable(file, f"cannot be read: {error.strerror}") from error
