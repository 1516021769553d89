"""Which names of settings may stand for a secret, or protect something. Pure."""

from __future__ import annotations

import re

_SECRET = re.compile(
    r".*(pas+|pwd|secret|token|jaas|credential|access.?key|oauthbearer|[._](pem|key)$).*|canal\.zookeeper\.(auth(\.before)?|sasl)",
    re.IGNORECASE,
)
_PROTECTS = re.compile(
    r"canal\.(ip|metrics\.pull\.bind|(admin\.)?user|accounts\.file|tls\..*|zookeeper\.tls(\..*)?"
    r"|instance\.(privacy\..*|.*\.sslMode|.*\.ssl\.ca|.*\.trustCertificateKeyStoreUrl|filter\.(black\.)?field))",
    re.IGNORECASE,
)
_OF_CANAL = re.compile(r"(canal|kafka|rocketmq|rabbitmq|pulsarmq)\..*", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return whether the name alone says that its value is a secret."""
    return _SECRET.fullmatch(name) is not None


def protects(name: str) -> bool:
    """Return whether less is protected if the value is blank.

    These are secrets, logins, certificates, rules, and addresses to listen on.
    """
    return is_secret_name(name) or _PROTECTS.fullmatch(name) is not None


def is_of_canal(name: str) -> bool:
    """Return whether the name is one of canal's. Any other can be a variable of the environment, whatever it holds."""
    return _OF_CANAL.fullmatch(name) is not None
