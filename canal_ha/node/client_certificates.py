"""ClientCertificates: when the certificates end that a node shows to servers. Reactor thread; the pool reads files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from twisted.internet.threads import deferToThread

from canal_ha import logs
from canal_ha.config.model import GroupMember, InstanceConfig, ZooKeeperAccess
from canal_ha.config.small_files import read_small
from canal_ha.node.looks import Looks
from canal_ha.server.expiry import KnownCertificate

LOG = logs.get(__name__)
PERIOD_S = 60.0


class ClientCertificates:
    """See the module."""

    def __init__(
        self, access: ZooKeeperAccess, instances: Callable[[], Iterable[InstanceConfig]], reactor: Any
    ) -> None:
        """access: to ZooKeeper. instances: returns the destinations of this moment. reactor: Twisted's."""
        self._access = access
        self._instances = instances
        self._looks = Looks(self._look, PERIOD_S, reactor, LOG, "certificates.broken")
        self.known: tuple[KnownCertificate, ...] = ()

    def start(self) -> None:
        """Look now, and again and again: a new file counts from the next connection on."""
        self._looks.start(now=True)

    def stop(self) -> None:
        """Look no more."""
        self._looks.stop()

    async def _look(self) -> None:
        uses = certificate_uses(self._access, self._instances())
        self.known = await deferToThread(read_certificates, uses) if uses else ()


def certificate_uses(access: ZooKeeperAccess, instances: Iterable[InstanceConfig]) -> Mapping[str, str]:
    """Return the files of client certificates, each with what it is for.

    access: to ZooKeeper.
    instances: destinations with their sources and table histories.
    """
    found: dict[str, str] = {}
    for file, use in _uses(access, instances):
        found.setdefault(file, use)
    found.pop("", None)
    return found


def read_certificates(uses: Mapping[str, str]) -> tuple[KnownCertificate, ...]:
    """Read these files. One that cannot be read is left out: the connection that needs it says so."""
    found = []
    for file, use in uses.items():
        with suppress(OSError, ValueError, x509.InvalidVersion, UnsupportedAlgorithm):
            certificate = x509.load_pem_x509_certificate(read_small(Path(file)))  # the first one of a chain
            ends = certificate.not_valid_after_utc.timestamp()
            found.append(KnownCertificate(file, ends, f"the client certificate for {use}", "the server refuses"))
    return tuple(found)


def _uses(access: ZooKeeperAccess, instances: Iterable[InstanceConfig]) -> Iterator[tuple[str, str]]:
    yield access.cert_file, "ZooKeeper"
    for instance in instances:
        for member in (GroupMember(instance.master, instance.standby), *instance.group):
            for source in filter(None, (member.master, member.standby)):
                yield source.tls.cert_file, f"the source of {instance.destination}"
        yield instance.tsdb_tls.cert_file, f"the table history of {instance.destination}"
