#!/usr/bin/env bash
# Lets the node that runs a destination crash, and says how long nobody ran it. Clients go on by themselves.
#
#   bash deploy/failover-drill.sh [--orderly] [--within SECONDS] DESTINATION CONF_DIR CONF_DIR...
#
# CONF_DIR: configuration directories of nodes that run here, under systemd or not. CANAL_HA_VENV: see install.sh.
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH=$checkout${PYTHONPATH:+:$PYTHONPATH}
exec "${CANAL_HA_VENV:-$checkout/.venv}/bin/python" -m deploy.failover_drill "$@"
