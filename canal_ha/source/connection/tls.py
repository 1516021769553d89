"""TLS towards MySQL, and no password in plain text outside it: the class and PyMySQL's options of every connection."""

from __future__ import annotations

import ssl
from functools import cache
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import CR

from canal_ha.config.model import TlsConfig
from canal_ha.config.pem_files import check_regular
from canal_ha.config.private_keys import no_password
from canal_ha.errors import SourceRefused

if TYPE_CHECKING:
    _Connection = pymysql.Connection[Any]
else:
    _Connection = pymysql.Connection  # generic only in its stubs


class Connection(_Connection):
    """PyMySQL's connection. For PREFERRED, PyMySQL itself would load the system's authorities and not use them."""

    def _create_ssl_ctx(self, sslp: ssl.SSLContext | dict[str, object]) -> ssl.SSLContext:
        """Return the given context, or one that checks no certificate."""
        return sslp if isinstance(sslp, ssl.SSLContext) else _shared()


def secured(tls: TlsConfig) -> dict[str, Any]:
    """Return PyMySQL's options for TLS and for plugins that send the password itself. Raises SourceRefused.

    PREFERRED is PyMySQL's default: TLS without a check of the certificate if the server offers TLS, else a plain
    connection. If the handshake fails, there is no plain connection, as with MySQL's own client.
    """
    return {"auth_plugin_map": {"mysql_clear_password": _PlainPassword, "dialog": _Dialog}, **_tls(tls)}


def _tls(tls: TlsConfig) -> dict[str, Any]:
    if tls.mode == "DISABLED":
        return {"ssl_disabled": True}
    if tls.mode == "PREFERRED" and not tls.cert_file:
        return {}
    try:
        check_regular(tls.ca_file, tls.cert_file, tls.key_file)
        return {"ssl": _context(tls)}
    except OSError as error:  # SSLError is one
        raise SourceRefused(
            f"cannot use TLS files {tls.ca_file} {tls.cert_file} {tls.key_file}: {error}; check their paths and rights"
        ) from error


def _context(tls: TlsConfig) -> ssl.SSLContext:
    if tls.verified:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
        if hasattr(ssl, "VERIFY_X509_STRICT"):
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # certificates that MySQL generates do not pass it
        context.check_hostname = tls.mode == "VERIFY_IDENTITY"
    else:
        context = _unverified()
        if tls.ca_file:
            context.load_verify_locations(tls.ca_file)  # only so that a wrong path is an error here too
    if tls.cert_file:
        context.load_cert_chain(tls.cert_file, tls.key_file or None, no_password)
    return context


@cache
def _shared() -> ssl.SSLContext:
    """Return the context of all connections without files of their own. Each one takes half a millisecond."""
    return _unverified()


def _unverified() -> ssl.SSLContext:
    """Return a context that checks no certificate. It loads no authorities of the system, which takes 35 ms."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class _Plugin:
    """A plugin of PyMySQL for which the password itself crosses the network. connection: PyMySQL's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def _check(self) -> None:
        if not self._connection._secure:
            raise pymysql.OperationalError(
                CR.CR_AUTH_PLUGIN_ERR,
                "the server asks for the password in plain text, and the connection has no TLS; the password was not"
                " sent. Enable TLS at the server and set sslMode to VERIFY_CA or VERIFY_IDENTITY",
            )


class _PlainPassword(_Plugin):
    """mysql_clear_password, for LDAP and PAM."""

    def authenticate(self, packet: Any) -> Any:
        """Send the password inside TLS and return the answer. Raises OperationalError without TLS."""
        self._check()
        self._connection.write_packet(self._connection.password + b"\0")
        answer = self._connection._read_packet()
        answer.check_error()
        return answer


class _Dialog(_Plugin):
    """MariaDB's dialog, for PAM."""

    @property
    def authenticate(self) -> Any:
        """Raise OperationalError without TLS; inside TLS, have no such attribute, so that PyMySQL answers."""
        self._check()
        raise AttributeError
