#!/usr/bin/env bash
# Writes deploy/locks/: versions and hashes of all that pip installs for the images, the checks and the tools. Run it
# after a change of the requirements in setup.cfg, pyproject.toml or deploy/locks/tools.in, then run deploy/test.sh.
#
#   bash deploy/lock.sh              keeps each version that still fits
#   bash deploy/lock.sh --upgrade    takes the newest versions that fit
#
# A pin keeps its extras (coverage[toml]==7.17.3). If another package requires coverage[toml] and the pin says only
# coverage, pip tries the newest release of coverage, and refuses it because the lock does not pin it.
#
# The locks hold for each system and each Python that setup.cfg allows. CANAL_HA_VENV, CANAL_HA_CACHE: see install.sh.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
locks=deploy/locks
tools=$(bash deploy/tools.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

upgrade=()
case ${1:-} in
--upgrade) upgrade=(--upgrade) ;;
"") ;;
*) printf 'lock: unknown argument: %s; next: bash deploy/lock.sh [--upgrade]\n' "$1" >&2 && exit 1 ;;
esac

# compile OUTPUT ARGUMENT...: uv keeps the versions that are in OUTPUT. Only PyPI counts: no settings of this machine.
compile() {
    local output=$1
    shift
    env -u UV_FIND_LINKS -u UV_INDEX -u UV_EXTRA_INDEX_URL "$tools/uv" --no-config --quiet pip compile "$@" \
        --universal --python-version 3.11 --fork-strategy fewest --default-index https://pypi.org/simple \
        --generate-hashes --no-strip-extras --no-annotate --custom-compile-command 'bash deploy/lock.sh' --output-file "$output" >/dev/null
}

"$tools/python" -c '
import tomllib
with open("pyproject.toml", "rb") as file:
    print("\n".join(tomllib.load(file)["build-system"]["requires"]))
' >"$work/build.in"

# One resolution of everything first, so that all locks agree on a version.
cat $locks/{build,runtime,dev,docs,browser,spark,pipeline}.txt >"$work/all.txt"
compile "$work/all.txt" setup.cfg "$work/build.in" --all-extras "${upgrade[@]}"
for lock in build runtime dev docs browser spark pipeline; do
    case $lock in
    build) wanted=("$work/build.in") ;;
    runtime) wanted=(setup.cfg) ;;
    *) wanted=(setup.cfg --extra "$lock") ;;
    esac
    rm -f "$work/$lock.txt"
    compile "$work/$lock.txt" "${wanted[@]}" --constraint "$work/all.txt"
    cp "$work/$lock.txt" "$locks/$lock.txt"
done
compile "$locks/tools.txt" "$locks/tools.in" "${upgrade[@]}"
