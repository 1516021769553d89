#!/usr/bin/env bash
# Compares a snapshot of a table with the server's C client, Debezium's embedded engine and mydumper, on MariaDB and
# MySQL. Installs missing packages. A peer that cannot be installed is reported with the reason, and the rest runs.
#
#   bash bench/snapshot.sh                    1,200,000 rows, 5 rounds: about 10 minutes on two cores, after installing
#   bash bench/snapshot.sh --peers mydumper   some peers; --rows N, --rounds N, --help for more
#
# CANAL_HA_VENV, CANAL_HA_CACHE, CANAL_HA_PYTHON: see deploy/install.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash deploy/install.sh mysql
exec "${CANAL_HA_VENV:-.venv}/bin/python" -m bench.snapshot --peers debezium mydumper "$@"
