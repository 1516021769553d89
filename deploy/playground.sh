#!/usr/bin/env bash
# A playground: starts a database that changes once a second, a node, and a client that prints the changes; shows the
# address of the page. Ctrl-C ends everything. Installs missing packages on Debian 12, uses temporary directories and
# free ports of this machine alone, and leaves nothing behind.
#
#   bash deploy/playground.sh                 until Ctrl-C
#   bash deploy/playground.sh --seconds 60    ends by itself
#
# CANAL_HA_VENV: see install.sh.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=${CANAL_HA_VENV:-.venv}
if [[ ! -x $venv/bin/canal-ha ]] || ! PATH=$PATH:/usr/sbin command -v mariadbd >/dev/null; then
    bash deploy/install.sh
fi
exec "$venv/bin/python" -m deploy.playground "$@"
