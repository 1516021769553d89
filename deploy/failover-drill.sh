#!/usr/bin/env bash
# Crashes the node that runs a destination and prints how long no node ran it. Clients reconnect by themselves.
#
#   bash deploy/failover-drill.sh [--orderly] [--within SECONDS] DESTINATION CONF_DIR CONF_DIR...
#
# CONF_DIR: configuration directories of nodes that run here, under systemd or not. CANAL_HA_VENV: see install.sh.
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH=$checkout${PYTHONPATH:+:$PYTHONPATH}
exec "${CANAL_HA_VENV:-$checkout/.venv}/bin/python" -m deploy.failover_drill "$@"
