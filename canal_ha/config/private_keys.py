"""Private keys with a password are refused: OpenSSL would ask the terminal for it, and the process would wait."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from canal_ha.config.small_files import read_small
from canal_ha.errors import FileUnusable

UNLOCKED = "a key without a password, because nobody could type it: openssl pkey -in OLD -out NEW; keep NEW 0600"
_LOCKED = (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED")


def is_locked(pem: bytes) -> bool:
    """Return whether a PEM file has a key with a password."""
    return any(mark in pem for mark in _LOCKED)


def check_key(file: str) -> None:
    """Raise FileUnusable for a PEM file that has a key with a password. A missing file, or "", is no error here."""
    with suppress(OSError):
        if file and is_locked(read_small(Path(file))):
            raise FileUnusable(file, f"needs {UNLOCKED}")


def no_password() -> str:
    """Raise OSError, for the parameter `password` of ssl: a file may have been replaced since it was checked."""
    raise PermissionError(f"the private key has a password; write {UNLOCKED}")
