#!/usr/bin/env bash
# Measures pipelines without Spark into Delta, Parquet and Kafka, beside Debezium's embedded engine into the same broker.
#
#   bash bench/pipelines.sh                              300,000 rows of A and a share of B, 3 rounds
#   bash bench/pipelines.sh --rows 1200000 12000000      two sizes, so that start and slope separate; hours on two cores
#   bash bench/pipelines.sh --transaction 10000000       memory with one large transaction; --engine spark for Spark
#
# CANAL_HA_VENV, CANAL_HA_CACHE, CANAL_HA_PYTHON: see deploy/install.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash deploy/install.sh mysql spark kafka
exec "${CANAL_HA_VENV:-.venv}/bin/python" -m bench.pipelines "$@"
