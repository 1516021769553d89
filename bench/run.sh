#!/usr/bin/env bash
# Compares canal-ha with canal's Java server, go-mysql, mysqlbinlog and mysql-replication, on MySQL and MariaDB.
# Installs missing packages. A peer that cannot be installed is reported with the reason, and the rest runs.
#
#   bash bench/run.sh                    everything: about 20 minutes on two cores, after installing
#   bash bench/run.sh --quick            fewer rows and rounds: about 6 minutes
#   bash bench/run.sh --peers java,go    some peers; --rows N, --rounds N, --help for more
#
# CANAL_HA_VENV, CANAL_HA_CACHE, CANAL_HA_PYTHON: see deploy/install.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

peers=java,go,mysqlbinlog,mysql-replication
arguments=("$@")
for ((i = 0; i < $#; i++)); do
    case ${arguments[i]} in
    --peers) peers=${arguments[i + 1]:-} ;;
    --peers=*) peers=${arguments[i]#*=} ;;
    esac
done

bash deploy/install.sh mysql spark
missing=()
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
for peer in ${peers//,/ }; do
    if ! bash bench/peers/install.sh "$peer" 2>"$errors"; then
        cat "$errors" >&2
        missing+=(--missing "$peer=$(tail -n 1 "$errors")")
    fi
done

"${CANAL_HA_VENV:-.venv}/bin/python" -m bench.run "$@" ${missing[@]+"${missing[@]}"}
