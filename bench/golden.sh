#!/usr/bin/env bash
# Entries equal / total for every binlog file that was recorded together with canal's entries (tests/golden/binlog).
#
#   bash bench/golden.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash deploy/install.sh
exec "${CANAL_HA_VENV:-.venv}/bin/python" -m bench.golden
