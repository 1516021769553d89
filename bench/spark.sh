#!/usr/bin/env bash
# Rows per second from a node through Spark into committed Parquet, beside Spark's own JSON source on the same rows.
#
#   bash bench/spark.sh [ROWS] [--rounds N]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${CANAL_HA_VENV:-.venv}/bin/python" -m bench.spark_rates "$@"
