"""A mixed workload: inserts, updates and deletes in tables of many types, in transactions of random size."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from lab import SqlServer

Row = dict[str, Any]
Change = tuple[str, str, Row | None, Row | None]
"""table, INSERT | UPDATE | DELETE, before, after; values as `plain` makes them."""

TABLES = {
    "orders": """CREATE TABLE {db}.orders (
        id int NOT NULL AUTO_INCREMENT PRIMARY KEY, customer bigint unsigned NOT NULL, amount decimal(14,4),
        state enum('new','paid','gone') NOT NULL, note varchar(200), placed datetime(6) NOT NULL, day date,
        took time(3),        score double, raw varbinary(64)) CHARACTER SET utf8mb4""",
    "events": """CREATE TABLE {db}.events (
        seq bigint NOT NULL AUTO_INCREMENT PRIMARY KEY, kind tinyint unsigned, flags bit(12), body text, blobby blob,
        ratio float, yr year, tiny tinyint, mid mediumint) CHARACTER SET utf8mb4""",
    "notes": "CREATE TABLE {db}.notes (a int, b varchar(40), c json) CHARACTER SET utf8mb4",
}
WORDS = ("alpha", "βήτα", "гамма", "数据", "", "it's", 'say "hi"', "tab\tline\n", "😀 smile", "back\\slash")


def create(server: SqlServer, database: str) -> None:
    """Create the schema and its tables. JSON columns are text on a server without that type."""
    texts = [text.format(db=database) for text in TABLES.values()]
    if server.version.startswith("5.6."):
        texts = [text.replace(" json", " longtext") for text in texts]
    server.execute(f"CREATE DATABASE {database}", *texts)


def run(server: SqlServer, database: str, changes: int, *, seed: int = 1, start: int = 0) -> int:
    """Commit about `changes` row changes and return the exact number. The same seed gives the same changes."""
    chance = random.Random(seed)
    done = 0
    with server.connect(database=database, autocommit=False) as connection, connection.cursor() as cursor:
        while done < changes:
            for _ in range(chance.choice((1, 1, 2, 5))):
                done += _statement(cursor, chance)
            connection.commit()
    return done


def _statement(cursor: Any, chance: random.Random) -> int:
    what = chance.random()
    if what < 0.35:
        rows = [_order(chance) for _ in range(chance.choice((1, 3, 40, 300)))]
        columns = "customer, amount, state, note, placed, day, took, score, raw"
        return _insert(cursor, "orders", columns, rows)
    if what < 0.55:
        columns = "kind, flags, body, blobby, ratio, yr, tiny, mid"
        return _insert(cursor, "events", columns, [_event(chance) for _ in range(chance.choice((1, 10, 100)))])
    if what < 0.65:
        return _insert(cursor, "notes", "a, b, c", [_note(chance) for _ in range(chance.choice((1, 5)))])
    low = chance.randrange(1, 60000)
    if what < 0.85:
        return int(
            cursor.execute(
                "UPDATE orders SET state = 'paid', amount = amount + 1, note = %s WHERE id BETWEEN %s AND %s",
                (chance.choice(WORDS), low, low + 60),
            )
        )
    if what < 0.92:
        return int(
            cursor.execute("UPDATE events SET tiny = NULL, body = %s WHERE seq = %s", (chance.choice(WORDS), low))
        )
    return int(cursor.execute("DELETE FROM orders WHERE id BETWEEN %s AND %s", (low, low + 5)))


def _insert(cursor: Any, table: str, columns: str, rows: list[tuple[Any, ...]]) -> int:
    marks = ", ".join(["%s"] * len(rows[0]))
    return int(cursor.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows))


def _order(chance: random.Random) -> tuple[Any, ...]:
    moment = dt.datetime(2001, 2, 3, 4, 5, 6) + dt.timedelta(microseconds=chance.randrange(10**15))
    return (
        chance.choice((0, 7, 2**63, 2**64 - 1, chance.randrange(10**9))),
        None if chance.random() < 0.1 else Decimal(chance.randrange(-(10**9), 10**9)) / 10000,
        chance.choice(("new", "paid", "gone")),
        None if chance.random() < 0.2 else chance.choice(WORDS) * chance.randrange(1, 9),
        moment,
        moment.date(),
        _time(chance),
        chance.choice((0.0, -1.5, 1e20, 1e-9, chance.random())),
        chance.randbytes(chance.randrange(1, 64)),
    )


def _time(chance: random.Random) -> str:
    """Return a TIME(3) of the whole range. Negative values have no fraction: mysql-replication misreads it."""
    hours = chance.randrange(-838, 838)
    fraction = 0 if hours < 0 else chance.randrange(1000)
    return f"{hours}:{chance.randrange(60):02}:{chance.randrange(60):02}.{fraction:03}"


def _event(chance: random.Random) -> tuple[Any, ...]:
    return (
        chance.randrange(256),
        chance.randrange(4096),
        chance.choice(WORDS) * chance.randrange(0, 30),
        chance.randbytes(chance.randrange(0, 200)),
        chance.choice((0.5, -2.25, 1024.0, None)),
        chance.choice((1901, 2026, 2155, None)),
        chance.randrange(-128, 128),
        chance.randrange(-8388608, 8388608),
    )


def _note(chance: random.Random) -> tuple[Any, ...]:
    body = {"n": chance.randrange(1000), "s": chance.choice(WORDS), "l": [1, None, True, 2.5]}
    return (None if chance.random() < 0.3 else chance.randrange(100), chance.choice(WORDS), json.dumps(body))


def selected(server: SqlServer, database: str, table: str) -> Iterator[Row]:
    """Yield the current rows of a table, with values as `plain` returns them."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        for row in cursor.fetchall():
            yield plain(table, dict(zip(names, row, strict=True)))


def plain(table: str, row: Row) -> Row:
    """Return values of PyMySQL or mysql-replication in a form that can be compared with canal's."""
    return {name: _plain(table, name, value) for name, value in row.items()}


def _plain(table: str, name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "flags":
        return int(value, 2) if isinstance(value, str) else int.from_bytes(value, "big")
    if name == "c":
        return _json(value)
    if name == "took":
        return value if isinstance(value, dt.timedelta) else parse_time(value)
    if name in ("raw", "blobby") and isinstance(value, str):
        return value.encode()  # mysql-replication returns an empty BLOB as text
    if name == "yr":
        return int(value)
    return value


def _json(value: Any) -> Any:
    """Return JSON text, or what mysql-replication makes of it (bytes inside), as plain Python."""
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value
    if isinstance(value, dict):
        return {_text(key): _json_inner(inner) for key, inner in value.items()}
    return value


def _json_inner(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [_json_inner(inner) for inner in value]
    return value


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def parse_time(text: str) -> dt.timedelta:
    """Return `[-]HH:MM:SS[.f]` as a timedelta."""
    sign = -1 if text.startswith("-") else 1
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    micros = int((fraction or "0").ljust(6, "0"))
    return sign * dt.timedelta(hours=int(hours), minutes=int(minutes), seconds=int(whole), microseconds=micros)
