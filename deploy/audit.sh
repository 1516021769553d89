#!/usr/bin/env bash
# Asks PyPI for known vulnerabilities of the packages in the image: deploy/locks/runtime.txt.
#
#   bash deploy/audit.sh            exit code 0: none; 1: a package has one; 75: PyPI did not answer for
#                                 each package
#   bash deploy/audit.sh spark      the image of a Spark job: deploy/locks/spark.txt
#
# CANAL_HA_VENV, CANAL_HA_CACHE: see install.sh.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools=$(bash deploy/tools.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# pip-audit ends with 0 if PyPI knows no package, and with 1 both for a vulnerability and without a network
"$tools/pip-audit" --require-hashes --disable-pip --progress-spinner off --format json --output "$work/report" \
    -r "deploy/locks/${1:-runtime}.txt" 2>"$work/errors" || true
if [[ ! -s $work/report ]]; then
    tail -n 3 "$work/errors" >&2
    # the classes of requests and of pip-audit for a network that fails
    ! grep -qE 'requests\.exceptions\.|ConnectionError|ServiceError' "$work/errors" || exit 75
    printf 'audit: pip-audit failed; read the lines above\n' >&2
    exit 2
fi
"${CANAL_HA_VENV:-.venv}/bin/python" -m deploy.audit "$work/report"
