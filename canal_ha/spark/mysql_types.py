"""Maps a column's mysqlType to a Spark type: the name of its Arrow type (canal_ha.client.arrow_types).

byte, short, int, long, decimal, float, double, boolean, date, string, binary
datetime     timestamp_ntz
timestamp    timestamp
"""

from __future__ import annotations

import pyarrow as pa

from canal_ha.client.arrow_types import NTZ, UTC, ColumnType, column_type, plain, to_arrow

__all__ = ["ColumnType", "column_type", "plain", "spark_name", "to_arrow"]


def spark_name(kind: pa.DataType) -> str:
    """Return the Spark DDL name of an Arrow type from column_type."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _SPARK_NAMES[kind]


_SPARK_NAMES = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    NTZ: "TIMESTAMP_NTZ",
    UTC: "TIMESTAMP",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
}
