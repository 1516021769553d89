"""The operator's token: who can read this file may switch sources on a node without accounts.

An address is no proof: behind a proxy on the node's machine everybody comes from there.
"""

from __future__ import annotations

import os
import secrets
from hashlib import sha256
from pathlib import Path

from canal_ha import logs
from canal_ha.private_files import make_directory

LOG = logs.get(__name__)


def write_token(file: Path) -> bytes:
    """Write a new token, for the node's user alone, and return its SHA-256; b"" if it cannot be written."""
    token = secrets.token_urlsafe(32)
    try:
        make_directory(file.parent)
        file.unlink(missing_ok=True)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(token + "\n")
    except OSError as error:
        LOG.warning("operator.no_token", file=str(file), error=str(error.strerror))
        return b""
    return sha256(token.encode()).digest()
