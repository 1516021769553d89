"""Passwords on the wire: MySQL's 4.1 scramble with the handshake's seed (docs/protocol.md#scramble)."""

from __future__ import annotations

import hashlib
import hmac
from binascii import Error, unhexlify

from canal_ha.errors import RemoteProtocolError

SEED_BYTES = 8
_TOKEN_BYTES = 20


def token(password: str, seed: bytes) -> bytes:
    """Return the token that a client sends: 40 lower-case hex digits."""
    once = _sha1(password.encode())
    mask = _sha1(seed + _sha1(once))
    return _xor(mask, once).hex().encode()


def secret_of(password: str) -> bytes:
    """Return the hash that a server stores for a password; canal.passwd is its hex text."""
    return _sha1(_sha1(password.encode()))


def proves(secret: bytes, password: bytes, seed: bytes) -> bool:
    """Return whether a token was made from the password of a secret.

    secret: what the server stores.
    password: the token, as hex text of either case.
    seed: the seed of the handshake.
    Raises RemoteProtocolError for a text that is not hex or is too short; canal closes the connection then.
    """
    once = _xor(_sha1(seed + secret), _from_hex(password))
    return hmac.compare_digest(_sha1(once), secret)


def _from_hex(text: bytes) -> bytes:
    """Decode a hex text of either case; an odd number of digits gets a leading 0."""
    if len(text) % 2:
        text = b"0" + text
    try:
        sent = unhexlify(text)
    except Error:
        raise RemoteProtocolError("illegal hex-string in the password of CLIENTAUTHENTICATION") from None
    if len(sent) < _TOKEN_BYTES:
        raise RemoteProtocolError(f"the password token has {len(sent)} bytes instead of {_TOKEN_BYTES}")
    return sent


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=False))  # a token may be longer than a digest


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()
