#!/usr/bin/env bash
# Restarts the nodes on this machine one after the other. Each node hands over its destinations; nothing is lost.
#
#   bash deploy/rolling-restart.sh CONF_DIR CONF_DIR...
#
# CONF_DIR: configuration directories of nodes that run here, under systemd or not. CANAL_HA_VENV: see install.sh.
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH=$checkout${PYTHONPATH:+:$PYTHONPATH}
exec "${CANAL_HA_VENV:-$checkout/.venv}/bin/python" -m deploy.rolling_restart "$@"
