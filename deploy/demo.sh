#!/usr/bin/env bash
# Demonstrates canal-ha: one of two nodes follows a database that changes; clients print and count the rows. The script
# kills the node under writes and the other node takes over; later that node stops and hands over. No row is lost.
# Installs missing packages, uses a temporary directory and free ports, leaves nothing running; takes about a minute.
#
#   bash deploy/demo.sh                         ZooKeeper, MariaDB, two nodes
#   bash deploy/demo.sh --mysql                 MySQL 9 instead of MariaDB
#   bash deploy/demo.sh --spark                 with a Spark job that copies into a Delta table during a crash
#   bash deploy/demo.sh --standalone            one node without ZooKeeper
#   bash deploy/demo.sh --standalone --rows N   number of rows to insert and count (default 20000)
#
# Exit code 1 if a row is lost, duplicated without a crash or out of order, or on any other fault.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
parts=()
[[ " $* " != *" --mysql "* ]] || parts+=(mysql)
[[ " $* " != *" --spark "* ]] || parts+=(spark)
bash deploy/install.sh "${parts[@]}"
exec "${CANAL_HA_VENV:-.venv}/bin/python" -m deploy.demo.run "$@"
