"""What `openssl s_client` finds at the three ports of a node with TLS.

python -m lab.tls_ports        starts a node, and prints a line for each port
"""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
from dataclasses import astuple, dataclass, fields
from http.client import HTTPSConnection
from pathlib import Path

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.tls import ClientTls
from canal_ha.errors import ServerRefused
from lab.certificates import Authority
from lab.node import Node
from lab.ports import LOOPBACK
from lab.process import temporary_directory

ACCOUNT = "shop"
ACCOUNTS = f'[accounts.{ACCOUNT}]\nroles = ["read"]\ndestinations = ["*"]\n'


@dataclass(frozen=True, slots=True)
class PortFound:
    """One port; each field is a column of the table.

    old: the protocol of a client that offers TLS 1.1; "refused" without a connection.
    lowest, newest: the protocol of a client that offers TLS 1.2, and of one that offers all.
    certificate, verified: the name in the node's certificate, and what openssl says about it.
    stranger: the protocol of a client with a certificate of another authority.
    account: who logs in with a client's certificate and without a password; "none" if nobody does, or everybody.
    """

    port: str
    old: str
    lowest: str
    newest: str
    certificate: str
    verified: str
    stranger: str
    account: str


def look() -> list[PortFound]:
    """Start a node with TLS on its ports, and look at each. Raises StartFailed."""
    directory = temporary_directory("tls-ports")
    authority, clients, others = (Authority(directory, name) for name in ("nodes", "clients", "others"))
    own, stranger = clients.sign(ACCOUNT), others.sign(ACCOUNT, "stranger")
    properties = {
        "canal.accounts.file": "../conf/accounts.toml",
        "canal.tls.cert": str(authority.sign("canal1")),
        "canal.tls.ca": str(clients.file),
        "canal.tls.ports": "client, metrics, admin",
    }
    node = Node({}, properties=properties)
    (node.conf / "accounts.toml").write_text(ACCOUNTS)
    found = []
    with node:
        ports = {"client": node.port, "metrics": node.metrics_port, "admin": node.admin_port}
        for name, port in ports.items():
            old, lowest, newest, foreign = (
                _shown(port, authority.file, *more)
                for more in (
                    ("-tls1_1", "-cipher", "ALL:@SECLEVEL=0"),
                    ("-tls1_2", "-cert", str(own)),
                    ("-cert", str(own)),
                    ("-tls1_2", "-cert", str(stranger)),
                )
            )
            by_certificate, by_nobody = (_logs_in(name, port, authority.file, file) for file in (own, None))
            found.append(
                PortFound(
                    name,
                    old.get("Protocol version", "refused"),
                    lowest.get("Protocol version", "refused"),
                    newest.get("Protocol version", "refused"),
                    newest.get("Peer certificate", ""),
                    newest.get("Verification", "failed"),
                    foreign.get("Protocol version", "refused"),
                    ACCOUNT if by_certificate and not by_nobody else "none",
                )
            )
    return found


def _shown(port: int, authority: Path, *more: str) -> dict[str, str]:
    """Return what openssl prints about a connection, by name; nothing about one that fails."""
    command = ["openssl", "s_client", "-brief", "-connect", f"{LOOPBACK}:{port}", "-CAfile", str(authority)]
    command += ["-verify_return_error", "-verify_ip", LOOPBACK, *more]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
    return {} if done.returncode else dict(re.findall(r"^([\w ]+): (.*)$", done.stderr.decode(), re.MULTILINE))


def _logs_in(name: str, port: int, authority: Path, certificate: Path | None) -> bool:
    if name == "client":
        tls = ClientTls(str(authority), str(certificate or ""))
        try:
            with SimpleConnector(LOOPBACK, port, "none", tls=tls, rollback_on_connect=False):
                return True
        except ServerRefused:
            return False
    context = ssl.create_default_context(cafile=str(authority))
    if certificate:
        context.load_cert_chain(certificate)
    connection = HTTPSConnection(LOOPBACK, port, timeout=10, context=context)
    connection.request("GET", "/metrics" if name == "metrics" else "/api/v1/status")
    status = connection.getresponse().status
    connection.close()
    return status == 200


def main() -> int:
    """Print the table."""
    rows = [tuple(field.name for field in fields(PortFound)), *map(astuple, look())]
    for row in rows:
        sys.stdout.write("".join(f"{cell:<14}" for cell in row).rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
