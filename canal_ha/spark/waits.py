"""A file in the spool that says what a driver waits for while it has no connection, for whoever shows progress."""

from __future__ import annotations

import json

from canal_ha.spark.storage import Storage

FILE = "waits.json"
RENEW_S = 10.0  # a driver that waits renews the file so often, and
OVER_S = 60.0  # a file that is older belongs to a driver that has ended


def tell(storage: Storage, why: str, now_ms: int) -> None:
    """Write what a driver waits for. now_ms: ms since 1970."""
    storage.write(FILE, json.dumps({"why": why, "at": now_ms}).encode())


def told(storage: Storage, now_ms: int) -> str:
    """Return what a driver waits for; "" for nothing. now_ms: ms since 1970."""
    try:
        body = json.loads(storage.read(FILE))
        return str(body["why"]) if now_ms - int(body["at"]) < OVER_S * 1000 else ""
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""
