#!/usr/bin/env bash
# Measures rows per second from a node through Spark to committed Parquet, and Spark's own JSON source with the same rows.
#
#   bash bench/spark.sh [ROWS] [--rounds N]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${CANAL_HA_VENV:-.venv}/bin/python" -m bench.spark_rates "$@"
