"""The table history gives the row events of recorded binlogs the same columns as the reference."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from canal_ha.decode.ddl.event_types import classify
from canal_ha.decode.history.history import History
from canal_ha.decode.table_map import parse_table_map
from canal_ha.model.position import LogPosition

GOLDEN = Path(__file__).parent.parent / "golden" / "tables"
Step = dict[str, Any]


def steps(tag: str) -> tuple[dict[str, str], list[Step]]:
    """Return SHOW CREATE TABLE by case/table, and the statements and table maps in binlog order."""
    with gzip.open(GOLDEN / f"tables_{tag}.jsonl.gz", "rt", encoding="utf-8") as file:
        head, *rest = (json.loads(line) for line in file)
    return head["show_create"], rest


def replay(tag: str, fetch: Callable[[str], str | None], *, live_texts: bool = False) -> Iterator[tuple[Step, Any]]:
    """Apply every statement; yield each step with a table map and the schema that the history gives it."""
    _, recorded = steps(tag)
    case = ""
    history = History(lambda schema, table: fetch(f"{case}/{table}"), live_texts=live_texts)
    view = history.view(LogPosition("mysql-bin.000001", 4))
    for step in recorded:
        at = LogPosition("mysql-bin.000001", step["at"])
        if "sql" in step:
            view.apply(at, step["database"], step["sql"])
        else:
            case = step["case"]
            yield step, view.table(parse_table_map(bytes.fromhex(step["map"])), at)


def shown(step: Step, schema: Any) -> list[list[Any]]:
    """Return the columns of the step's row image in the form of the recording."""
    wanted = {index for index, *_ in step["columns"]}
    return [
        [index, column.name, column.mysql_type, column.key]
        for index, column in enumerate(schema.columns)
        if index in wanted
    ]


@pytest.mark.parametrize("tag", ["mysql9", "mariadb10.11"])
def test_statements_classify_as_recorded(tag: str) -> None:
    """Every statement event gives the recorded entry: event type, schema and table, or none."""
    for step in steps(tag)[1]:
        if "sql" in step:
            results = classify(step["sql"], step["database"])
            first = [results[0].event_type.name, results[0].schema, results[0].table] if results else None
            assert first == step["entry"], step["sql"]


@pytest.mark.parametrize("tag", ["mysql9", "mariadb10.11"])
def test_columns_as_recorded(tag: str) -> None:
    """The statements before a row event give its names, mysqlType texts and keys.

    Two tables whose CREATE the reference refuses take their texts from SHOW CREATE TABLE, as recorded.
    """
    show_create, _ = steps(tag)
    asked: list[str] = []

    def fetch(name: str) -> str | None:
        asked.append(name)
        return show_create.get(name)

    for step, schema in replay(tag, fetch):
        assert shown(step, schema) == step["columns"], step["case"]
    assert {name.partition("/")[2] for name in asked} == {"t_bin", "t_syn"}


@pytest.mark.parametrize("tag", ["mysql9", "mariadb10.11"])
def test_columns_without_a_server(tag: str) -> None:
    """Statements alone give the names and keys, and the texts of all tables that the reference could read."""
    for step, schema in replay(tag, lambda name: None):
        found = shown(step, schema)
        assert [column[:2] + column[3:] for column in found] == [c[:2] + c[3:] for c in step["columns"]]
        if step["case"] not in ("synonyms", "binary", "mariadb_types"):
            assert found == step["columns"]


def test_texts_of_the_server_when_preferred() -> None:
    """Without the reference's table history the texts are those of SHOW CREATE TABLE."""
    show_create, _ = steps("mysql9.notsdb")
    for step, schema in replay("mysql9.notsdb", show_create.get, live_texts=True):
        assert shown(step, schema) == step["columns"], step["case"]
