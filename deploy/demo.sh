#!/usr/bin/env bash
# Shows the main job: a database is changed, a node follows it, clients print and count what arrives.
# Installs what is missing, uses a temporary directory and free ports, leaves nothing running.
#
#   bash deploy/demo.sh             MariaDB
#   bash deploy/demo.sh --mysql     MySQL 9
#   bash deploy/demo.sh --rows N    how many rows the counted part inserts (default 20000)
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
case " $* " in
*" --mysql "*) bash deploy/install.sh mysql ;;
*) bash deploy/install.sh ;;
esac
exec "${CANAL_HA_VENV:-.venv}/bin/python" -m deploy.demo.run "$@"
