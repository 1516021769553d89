#!/usr/bin/env bash
# Prints equal and total entries of each binlog file that was recorded with canal's entries (tests/golden/binlog).
#
#   bash bench/golden.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash deploy/install.sh
exec "${CANAL_HA_VENV:-.venv}/bin/python" -m bench.golden
