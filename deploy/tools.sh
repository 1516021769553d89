#!/usr/bin/env bash
# Installs uv, pip-audit and cyclonedx-py into the cache, in the versions of deploy/locks/tools.txt, and prints the
# directory of their programs.
#
#   tools=$(bash deploy/tools.sh)
#
# CANAL_HA_VENV, CANAL_HA_CACHE: see install.sh.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
lock=deploy/locks/tools.txt
python=${CANAL_HA_VENV:-.venv}/bin/python
cache=${CANAL_HA_CACHE:-$HOME/.cache/canal-ha}
if [[ ! -x $python ]]; then
    printf 'tools: %s is missing; next: bash deploy/install.sh\n' "$python" >&2
    exit 1
fi
mkdir -p "$cache"
exec 9>"$cache/tools.lock"
flock 9
if ! cmp -s "$lock" "$cache/tools/lock.txt"; then
    "$python" -m venv --clear "$cache/tools" >&2
    "$cache/tools/bin/pip" --quiet --disable-pip-version-check install --require-hashes --only-binary :all: -r "$lock" >&2
    cp "$lock" "$cache/tools/lock.txt" # last, because it marks the tools as complete
fi
printf '%s\n' "$cache/tools/bin"
