#!/usr/bin/env bash
# Shows the main job: a database is changed, one of two nodes follows it, clients print and count what arrives. The node
# is killed under writes, the other one takes over, and later hands over in good order; nothing is lost.
# Installs what is missing, uses a temporary directory and free ports, leaves nothing running; takes about a minute.
#
#   bash deploy/demo.sh                         ZooKeeper, MariaDB, two nodes
#   bash deploy/demo.sh --mysql                 MySQL 9 instead of MariaDB
#   bash deploy/demo.sh --spark                 with a Spark job that copies into a Delta table through a crash
#   bash deploy/demo.sh --standalone            one node without ZooKeeper
#   bash deploy/demo.sh --standalone --rows N   how many rows its counted part inserts (default 20000)
#
# Ends with code 1 when a row is lost, comes twice without need or out of order, or anything else is not as it must be.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
parts=()
[[ " $* " != *" --mysql "* ]] || parts+=(mysql)
[[ " $* " != *" --spark "* ]] || parts+=(spark)
bash deploy/install.sh "${parts[@]}"
exec "${CANAL_HA_VENV:-.venv}/bin/python" -m deploy.demo.run "$@"
