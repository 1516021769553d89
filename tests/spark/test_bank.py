"""Acceptance test of the pipelines: a bank under writes, with crashes of the driver and fail-overs of the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.dataset as dataset
import pytest
from deltalake import DeltaTable

from lab import MariaDB, MySQL, Node, ZooKeeper, follow, lake
from tests.sampling import LONG
from tests.spark.bank import TABLES, TOTAL, Bank
from tests.spark.running import Driver, write_pipeline
from tests.waiting import until

CRASHES = ("segment:2", "manifest:12", "ack:3", "offset:2", "sink:5", "commit:1") if LONG else ("manifest:12", "sink:5")
ROUNDS = 10 if LONG else 1
FAIL_OVER_BEFORE = ("manifest:12", "sink:5")  # fail over while the driver that crashes there reads


@pytest.mark.spark
@pytest.mark.nightly("test_lake_table: rows into Delta; test_tailer.py: crashes; tests/cluster_faults: fail-overs")
def test_every_copy_of_a_bank_ends_equal_to_its_source(
    mysql: MySQL, mariadb: MariaDB, zookeeper: ZooKeeper, database: str, tmp_path: Path
) -> None:
    """Delta, MySQL and the folded Parquet log equal the source; each batch in both Delta tables has the total."""
    settings = follow(mysql, {"canal.instance.filter.regex": rf"{database}\..*"})
    log = tmp_path / "driver.log"
    file = write_pipeline(
        tmp_path / "bank.toml",
        {
            "zkServers": zookeeper.hosts,
            "destination": database,
            "spoolDir": str(tmp_path / "spool"),
            "maxRowsPerTrigger": 5000,
            "sessionTimeoutMs": 2000,
        },
        [
            {"type": "parquet", "path": str(tmp_path / "log")},
            {"type": "delta", "path": str(tmp_path / "lake")},
            {"type": "mysql", "address": mariadb.address, "user": "admin", "password": "admin",
             "database": "copy_{schema}", "stateDatabase": f"state_{database}"},
        ],
        tables=[f"{database}.*"],
    )  # fmt: skip
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(Node({database: settings}, zk_servers=zookeeper.hosts, name=f"node{n}")) for n in (1, 2)
        ]
        until(lambda: running(nodes, database) is not None, what="a node runs the destination")
        bank = Bank(mysql, database)
        bank.create()
        bank.start()
        for number, crash_at in enumerate(CRASHES * ROUNDS):
            spool = tmp_path / "spool" / database / "1001"
            before = claims(spool)
            with Driver(file, crash_at=crash_at, log=log) as driver:
                if crash_at in FAIL_OVER_BEFORE:
                    until(partial(begun_since, spool, before), what="a driver that reads", seconds=300)
                    assert driver.process.poll() is None
                    fail_over(nodes, database)
                assert driver.wait(300) == -9, driver.tail()
            if number == 1:
                bank.alter()
        bank.stop()
        with Driver(file, once=True, log=log) as driver:
            assert driver.wait(300) == 0, driver.tail()
        assert bank.transactions > 100
        compared = 0
        for table in TABLES:
            source = bank.rows(table)
            compared += len(source)
            assert source == delta_rows(tmp_path / "lake" / database / table)
            assert source == {row["id"]: row for row in mariadb.query(f"SELECT * FROM copy_{database}.{table}")}
            assert {str(key): texts(row) for key, row in source.items()} == folded(tmp_path / "log", table)
        checked = 0
        for batch, totals in batch_totals(tmp_path / "lake" / database):
            assert totals == TOTAL, f"batch {batch}"
            checked += 1
        assert checked > 1
        kills, fail_overs = len(CRASHES) * ROUNDS, len(FAIL_OVER_BEFORE) * ROUNDS
        print(
            f"\nbank: {bank.transactions} transactions, {kills} drivers killed, {fail_overs} fail-overs;"
            f" {compared} rows are equal in Delta, MySQL and the folded log;"
            f" the total is right in all {checked} batches that both tables have"
        )


def claims(spool: Path) -> set[str]:
    """Return the writers of a spool."""
    return {path.name for path in spool.glob("epoch-*")}


def begun_since(spool: Path, before: set[str]) -> bool:
    """Return whether a new writer has a durable segment."""
    new = [name.removeprefix("epoch-") for name in claims(spool) - before]
    return any(any(spool.glob(f"segment-*-{epoch}.zst")) for epoch in new)


def running(nodes: list[Node], destination: str) -> Node | None:
    """Return the node that runs the destination; None if there is none."""
    return next((node for node in nodes if node.alive() and destination in node.running()), None)


def fail_over(nodes: list[Node], destination: str) -> None:
    """Kill the node that runs the destination, wait for the other one, and start the killed node again."""
    victim = running(nodes, destination)
    assert victim is not None
    victim.kill()
    until(lambda: running(nodes, destination) is not None, what="the other node takes over")
    victim.start()


def delta_rows(path: Path) -> dict[int, dict[str, Any]]:
    """Return the rows of a Delta table by account."""
    return {row["id"]: row for row in lake.rows(path)}


def batch_totals(schema: Path) -> Iterator[tuple[int, Decimal]]:
    """Yield each batch that both tables have, with the sum of all balances after it."""
    versions: list[dict[int, int]] = []
    for table in TABLES:
        history = DeltaTable(schema / table).history()
        versions.append(
            {int(entry["canal.batch"]): int(entry["version"]) for entry in history if "canal.batch" in entry}
        )
    for batch in sorted(versions[0].keys() & versions[1].keys()):
        total = Decimal(0)
        for table, known in zip(TABLES, versions, strict=True):
            total += sum(row["balance"] for row in lake.rows(schema / table, version=known[batch]))
        yield batch, total


def texts(row: dict[str, Any]) -> dict[str, str]:
    """Return a row as texts without its NULL columns; amounts and times have one spelling."""
    shown = {name: value for name, value in row.items() if value is not None}
    return {name: f"{value:.2f}" if isinstance(value, Decimal) else str(value)[:23] for name, value in shown.items()}


def folded(log: Path, table: str) -> dict[str, dict[str, str]]:
    """Return the last change of each key in the Parquet log, by position, in the spelling of `texts`."""
    rows = dataset.dataset(log, partitioning="hive").to_table().to_pylist()
    rows.sort(key=lambda row: (row["position"]["seq"], row["position"]["entry"], row["position"]["row"]))
    state: dict[str, dict[str, str]] = {}
    for row in rows:
        if row["table"] != table or row["op"] == "ddl":
            continue
        before, after = dict(row["before"] or ()), dict(row["after"] or ())
        state.pop(before.get("id", ""), None)
        if after:
            kept = {name: value for name, value in after.items() if value is not None}
            kept["balance"] = f"{Decimal(kept['balance']):.2f}"
            state[after["id"]] = kept
    for row in state.values():
        moment = row["changed"]
        row["changed"] = moment.removesuffix(".000")
    return state
