"""Signatures of requests, as Standard Webhooks (www.standardwebhooks.com) have them. Pure."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from hashlib import sha256

_PREFIX = "whsec_"


def secret_of(text: str) -> bytes:
    """Return the bytes of a secret. A text that starts with `whsec_` has them in base64. Raises ValueError."""
    if not text.startswith(_PREFIX):
        return text.encode()
    try:
        secret = b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base64 follows {_PREFIX}") from error
    if not secret:
        raise ValueError(f"nothing follows {_PREFIX}")
    return secret


def signature(secret: bytes, key: str, timestamp: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`. timestamp: seconds since 1970."""
    made = hmac.new(secret, f"{key}.{timestamp}.".encode() + body, sha256).digest()
    return f"v1,{b64encode(made).decode()}"
