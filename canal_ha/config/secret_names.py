"""Which names of settings may stand for a secret. Pure."""

from __future__ import annotations

import re

_SECRET = re.compile(
    r".*(pas+|pwd|secret|token|jaas|credential|access.?key|oauthbearer|[._](pem|key)$).*|canal\.zookeeper\.(auth|sasl)",
    re.IGNORECASE,
)
_OF_CANAL = re.compile(r"(canal|kafka|rocketmq|rabbitmq|pulsarmq)\..*", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return whether the name alone says that its value is a secret."""
    return _SECRET.fullmatch(name) is not None


def is_of_canal(name: str) -> bool:
    """Return whether the name is one of canal's. Any other can be a variable of the environment, whatever it holds."""
    return _OF_CANAL.fullmatch(name) is not None
