"""AddressFile: where the status endpoint of a node listens, for commands on the node's machine.

The port in the configuration can be another program's, because a node whose port is taken listens on a free one. The
node keeps a lock on the file as long as it lives, so nobody believes the file of a node that was killed.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from canal_ha import logs
from canal_ha.errors import NodeUnreachable
from canal_ha.private_files import make_directory

LOG = logs.get(__name__)


class AddressFile:
    """The file of this process, for its user alone. path: of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def write(self, url: str) -> None:
        """Write the address, instead of what is there. If that fails, the log has a warning."""
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            make_directory(self._path.parent)
            new.unlink(missing_ok=True)
            self._descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._descriptor, f"{url}\n".encode())
            new.replace(self._path)
        except OSError as error:
            LOG.warning("admin.no_address_file", file=str(self._path), error=str(error.strerror))

    def remove(self) -> None:
        """Remove the file, unless it is another process's by now."""
        if self._descriptor < 0:
            return
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._descriptor), self._path.stat()):
                self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = -1


def read_address(path: Path) -> str:
    """Return the address that a living node has written. Raises NodeUnreachable."""
    try:
        with path.open() as file:
            url = file.readline().strip()
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return url
    except OSError as error:
        raise NodeUnreachable(
            f"no node with this configuration runs here ({path}: {error.strerror}): start it, run this as its user, or"
            " give its address with --url"
        ) from error
    raise NodeUnreachable(f"the node that wrote {path} does not run any more: start it, or give its address with --url")


def url_of(host: str, port: int, *, tls: bool) -> str:
    """Return the address of an endpoint as its own machine calls it. host: the IP address that it listens on."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    host = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{host}:{port}"
