#!/usr/bin/env bash
# Runs the unit tests, with the kernel compiled, on each newer Python that is installed. Each has a virtual
# environment in the cache and a copy of this checkout. A Python that is not found is skipped, with the reason.
#
#   bash deploy/pythons.sh               all of them
#   bash deploy/pythons.sh 3.13          one of them; fails if it is not found
#   bash deploy/pythons.sh 3.14 tests/x  only these tests
#
# A Python is found as python3.N in PATH, as a version of pyenv, or as a program in CANAL_HA_PYTHONS (a list separated by
# spaces). CANAL_HA_CACHE: see install.sh.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
checkout=$PWD
cache=${CANAL_HA_CACHE:-$HOME/.cache/canal-ha}/pythons
locks=()
for lock in runtime dev docs pipeline spark; do
    locks+=(-r "$checkout/deploy/locks/$lock.txt")
done
unset PYTHONPATH PYTHONDONTWRITEBYTECODE VIRTUAL_ENV

# find_python VERSION: prints the program of a Python that works and can compile.
find_python() {
    local program
    for program in ${CANAL_HA_PYTHONS:-} "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        "$program" -c "
import os, sys, sysconfig, venv, ensurepip
assert sys.version_info[:2] == tuple(map(int, '$1'.split('.')))
assert os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h'))
print(os.path.realpath(sys.executable))" 2>/dev/null && return
    done
    return 1
}

# prepare VERSION PROGRAM: makes the environment if it is missing or other packages are wanted, and the copy.
prepare() {
    local at=$cache/$1 wanted
    wanted=$("$2" --version && cat "$checkout"/deploy/locks/*.txt | sha256sum)
    if [[ $(cat "$at/installed" 2>/dev/null) != "$wanted" ]]; then
        rm -rf "$at"
        "$2" -m venv "$at/venv" &&
            "$at/venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r deploy/locks/build.txt &&
            "$at/venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes --no-build-isolation \
                "${locks[@]}" || return
        printf '%s\n' "$wanted" >"$at/installed" # last, because it marks the environment as complete
    fi
    rm -rf "$at/checkout"
    "$at/venv/bin/python" -c "from pathlib import Path; from deploy import checkout; checkout.copy_to(Path('$at/checkout'))" &&
        cd "$at/checkout" &&
        CANAL_HA_KERNEL=off "$at/venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps \
            --no-build-isolation -e . &&
        CANAL_HA_KERNEL=require "$at/venv/bin/python" setup.py --quiet build_ext --inplace
}

# check VERSION PROGRAM TEST...: runs the tests there.
check() {
    local version=$1 program=$2
    shift 2
    prepare "$version" "$program" || return
    cd "$cache/$version/checkout" || return
    export PATH=$cache/$version/venv/bin:$PATH CANAL_HA_VENV=$cache/$version/venv
    CANAL_HA_KERNEL=require pytest -n auto --dist worksteal "$@"
}

failed=0
asked=${1:-}
shift $(($# ? 1 : 0))
for version in ${asked:-3.12 3.13 3.14}; do
    if ! program=$(find_python "$version"); then
        printf 'pythons: %s skipped: no python%s with venv and headers in PATH, pyenv or CANAL_HA_PYTHONS\n' "$version" "$version"
        [[ -z $asked ]] || failed=1
        continue
    fi
    printf 'pythons: %s: %s\n' "$version" "$program"
    if ! (check "$version" "$program" "$@"); then
        printf 'pythons: %s FAILED\n' "$version"
        failed=1
    fi
done
exit "$failed"
