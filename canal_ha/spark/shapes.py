"""The schemas of the source's shapes, as Spark DDL, because the calling process has no JVM. Pure.

    envelope  op ts destination schema table key before after position ddl     maps of texts, as canal writes values
    table     the table's columns, typed, then _op _ts _position _ddl
    debezium  destination schema table key value position                      JSON texts, Debezium's envelope
    changes   op ts destination schema table layout before after position ddl  arrays, with a JSON of their columns

`position` orders all changes of a destination, across changes of the source too, by (seq, entry, row). Its other fields
are the position in the binlog, comparable only within one server id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from canal_ha.errors import OptionInvalid
from canal_ha.pipeline.options import Shape

POSITION = (
    "STRUCT<`seq`: BIGINT, `entry`: INT, `row`: INT, `server`: BIGINT, `journal`: STRING, `offset`: BIGINT, `sub`: INT,"
    " `gtid`: STRING>"
)
_HEAD = "`op` STRING, `ts` TIMESTAMP, `destination` STRING, `schema` STRING, `table` STRING"
FIXED = {
    Shape.ENVELOPE: (
        f"{_HEAD}, `key` MAP<STRING, STRING>, `before` MAP<STRING, STRING>, `after` MAP<STRING, STRING>,"
        f" `position` {POSITION}, `ddl` STRING"
    ),
    Shape.CHANGES: (
        f"{_HEAD}, `layout` STRING, `before` ARRAY<STRING>, `after` ARRAY<STRING>, `position` {POSITION}, `ddl` STRING"
    ),
    Shape.DEBEZIUM: (
        f"`destination` STRING, `schema` STRING, `table` STRING, `key` STRING, `value` STRING, `position` {POSITION}"
    ),
}
META = {"_op": "STRING", "_ts": "TIMESTAMP", "_position": POSITION, "_ddl": "STRING"}
_META_TAKEN = re.compile(r"(?:^|,)\s*`?(_op|_ts|_position|_ddl)`?[\s:]", re.IGNORECASE)


def table_of_ddl(ddl: str) -> str:
    """Return the schema of TABLE with the columns in the option tableSchema. Raises OptionInvalid."""
    taken = _META_TAKEN.search(ddl)
    if taken:
        raise OptionInvalid(f"canal: option tableSchema may not have a column {taken[1]}: the source adds it")
    return f"{ddl.rstrip().rstrip(',')}, {_meta()}"


def table_of_columns(columns: Iterable[tuple[str, str, int]]) -> str:
    """Return the schema of TABLE with an entry's columns. columns: name, mysqlType, sqlType."""
    from canal_ha.spark.mysql_types import column_type, spark_name  # imports Arrow

    return ", ".join(
        [*(f"{quoted(name)} {spark_name(column_type(text, code).arrow)}" for name, text, code in columns), _meta()]
    )


def quoted(name: str) -> str:
    """Return a name in Spark's back-quotes."""
    return f"`{name.replace('`', '``')}`"


def _meta() -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in META.items())
