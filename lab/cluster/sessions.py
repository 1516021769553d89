"""The password of a ZooKeeper session, with which anybody can end it."""

from __future__ import annotations

_SECRET = 0xB3415C00  # ZooKeeperServer.superSecret, the same in every server
_MULTIPLIER, _INCREMENT, _MASK = 0x5DEECE66D, 0xB, (1 << 48) - 1  # java.util.Random


def password_of(session: int) -> bytes:
    """Return the password of a session id, as the server derives it: 16 bytes of java.util.Random, seeded with the id.

    Source: ZooKeeper 3.8, ZooKeeperServer.generatePasswd.
    """
    state = ((session ^ _SECRET) ^ _MULTIPLIER) & _MASK
    password = b""
    while len(password) < 16:
        state = (state * _MULTIPLIER + _INCREMENT) & _MASK
        password += (state >> 16 & 0xFFFFFFFF).to_bytes(4, "little")
    return password
