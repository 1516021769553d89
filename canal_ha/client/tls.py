"""ClientTls: how a client checks a node's certificate, and shows its own."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass

from canal_ha.config.pem_files import check_regular, require_regular
from canal_ha.config.private_keys import check_key, no_password


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS towards the nodes; files are PEM paths.

    ca_file: authorities that the node's certificate is checked with; "": those of the system.
    cert_file: the client's own certificate, which can name its account; "": none.
    key_file: its key; "": in cert_file.
    server_name: the name that the node's certificate must have; "": the host or address that the client connects to.
    """

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""

    def __post_init__(self) -> None:
        """Raise FileUnusable for a key with a password, and for a file that is a pipe or a device."""
        require_regular(self.ca_file, self.cert_file, self.key_file)
        check_key(self.key_file or self.cert_file)

    def context(self) -> ssl.SSLContext:
        """Read the files. Raises OSError."""
        check_regular(self.ca_file, self.cert_file, self.key_file)
        context = ssl.create_default_context(cafile=self.ca_file or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert_file:
            context.load_cert_chain(self.cert_file, self.key_file or None, no_password)
        return context

    def wrap(self, plain: socket.socket, host: str) -> ssl.SSLSocket:
        """Begin TLS on a connected socket. Raises OSError, also for a certificate that is not valid for the name."""
        return self.context().wrap_socket(plain, server_hostname=self.server_name or host)


def client_tls(*, on: bool, ca_file: str, cert_file: str, key_file: str, server_name: str) -> ClientTls | None:
    """Return the TLS of a command's or a source's options; None if none of them is set.

    on: TLS with the authorities of the system.
    ca_file, cert_file, key_file, server_name: see ClientTls.
    """
    if not (on or ca_file or cert_file or key_file or server_name):
        return None
    return ClientTls(ca_file, cert_file, key_file, server_name)
