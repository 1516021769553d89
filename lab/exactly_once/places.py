"""The targets, with their servers, and how their changes are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as dataset
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from lab.exactly_once.changes import Change
from lab.exactly_once.receiver import RowReceiver
from lab.kafka import Kafka
from lab.mysql import MariaDB, MySQL
from lab.postgresql import OWNER, PostgreSQL
from lab.process import Process

SCHEMA = "shop"
_DEBEZIUM = {"c": "insert", "u": "update", "d": "delete"}


@dataclass(frozen=True, slots=True)
class Place:
    """A target.

    options: in the file of the pipeline that writes a table.
    server: None without one.
    changes: reads those of a table, in the order in which the target got them.
    ordered: whether it stores that order; else `changes` has none.
    """

    options: Callable[[str], Mapping[str, Any]]
    server: Process | None
    changes: Callable[[str], list[Change]]
    ordered: bool = True


def place(kind: str, directory: Path, stack: ExitStack) -> Place:
    """Start a target. kind: one of PLACES; stack: stops it."""
    return PLACES[kind](directory, stack)


def _logged(rows: Iterable[Mapping[str, Any]]) -> list[Change]:
    """Return the changes of a changelog's rows."""
    return [Change(row["_op"], row["id"], row["v"]) for row in rows if row["_op"] != "ddl"]


def _delta(directory: Path, stack: ExitStack) -> Place:
    def changes(table: str) -> list[Change]:
        return _logged(DeltaTable(f"{directory}/{table}.delta/{SCHEMA}/{table}").to_pyarrow_table().to_pylist())

    def options(table: str) -> dict[str, Any]:
        return {"type": "delta", "mode": "changelog", "path": f"{directory}/{table}.delta"}

    return Place(options, None, changes, ordered=False)


def _parquet(directory: Path, stack: ExitStack) -> Place:
    def changes(table: str) -> list[Change]:
        files = dataset.dataset(directory / f"{table}.parquet" / SCHEMA / table).get_fragments()
        return _logged([row for each in files for row in each.to_table(schema=each.physical_schema).to_pylist()])

    return Place(
        lambda table: {"type": "parquet", "path": f"{directory}/{table}.parquet"}, None, changes, ordered=False
    )


def _iceberg(directory: Path, stack: ExitStack) -> Place:
    access = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}/warehouse"}

    def changes(table: str) -> list[Change]:
        return _logged(load_catalog("lake", **access).load_table((SCHEMA, table)).scan().to_arrow().to_pylist())

    options = {"type": "iceberg", "mode": "changelog", "catalog": {"name": "lake", **access}}
    return Place(lambda table: options, None, changes, ordered=False)


def _database(make: Callable[[], MySQL | MariaDB | PostgreSQL]) -> Callable[[Path, ExitStack], Place]:
    def start(directory: Path, stack: ExitStack) -> Place:
        server: MySQL | MariaDB | PostgreSQL = make()
        stack.enter_context(server)
        if isinstance(server, PostgreSQL):
            own = {"type": "postgresql", "database": "postgres", "user": OWNER, "password": OWNER}
            own |= {"schema": "copy_{schema}"}
        else:
            own = {"type": "mysql", "user": "admin", "password": "admin", "database": "copy_{schema}"}

        def changes(table: str) -> list[Change]:
            order = "_commit, _entry, _row, _op"
            return _logged(server.query(f"SELECT * FROM copy_{SCHEMA}.{table} ORDER BY {order}"))

        options = {**own, "mode": "changelog", "address": server.address}
        return Place(lambda table: options, server, changes)

    return start


def _kafka(directory: Path, stack: ExitStack) -> Place:
    server = stack.enter_context(Kafka())

    def changes(table: str) -> list[Change]:
        found = []
        for message in server.messages(f"{SCHEMA}.{table}"):
            if message.value() is not None:
                row = json.loads(message.value() or b"")
                image = row["after"] or row["before"]
                found.append(Change(_DEBEZIUM[row["op"]], image["id"], image["v"]))
        return found

    options = {"type": "kafka", "servers": server.address, "format": "debezium-json", "partitions": 3, "timeout": 20}
    return Place(lambda table: options, server, changes)


def _http(directory: Path, stack: ExitStack) -> Place:
    server = stack.enter_context(RowReceiver())

    def changes(table: str) -> list[Change]:
        found = []
        for row in server.rows():
            before, after = row.get("before"), row.get("after")
            image = after or before
            if image is not None and row["table"] == table:
                operation = "insert" if before is None else "delete" if after is None else "update"
                found.append(Change(operation, image["id"], image["v"]))
        return found

    return Place(lambda table: {"type": "http", "url": server.url, "batchRows": 20}, server, changes)


PLACES: dict[str, Callable[[Path, ExitStack], Place]] = {
    "delta": _delta,
    "iceberg": _iceberg,
    "parquet": _parquet,
    "mysql": _database(MySQL),
    "mariadb": _database(MariaDB),
    "postgresql": _database(PostgreSQL),
    "kafka": _kafka,
    "http": _http,
}
