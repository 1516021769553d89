#!/usr/bin/env bash
# The interpreted kernel end to end, beside mysql-replication: database -> node -> TCP -> a client that counts rows.
#
#   bash bench/interpreted.sh [ROWS]      default 100000; further options as of bench/end_to_end.py
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash deploy/install.sh mysql
exec env CANAL_HA_KERNEL=off "${CANAL_HA_VENV:-.venv}/bin/python" -m bench.end_to_end "$@"
