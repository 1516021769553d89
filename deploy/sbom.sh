#!/usr/bin/env bash
# Prints the packages of the image's Python part as a CycloneDX document (JSON): deploy/locks/runtime.txt.
#
#   bash deploy/sbom.sh >canal-ha.cdx.json
#   bash deploy/sbom.sh spark               the image of a Spark job: deploy/locks/spark.txt
#
# CANAL_HA_VENV, CANAL_HA_CACHE: see install.sh.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools=$(bash deploy/tools.sh)
exec "$tools/cyclonedx-py" requirements --output-reproducible --of JSON --validate "deploy/locks/${1:-runtime}.txt"
