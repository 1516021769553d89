#!/usr/bin/env bash
# Feeds damaged dumps and damaged entries to the compiled kernel under AddressSanitizer, which ends the run at the first
# access outside the allocated memory.
#
#   bash deploy/fuzz.sh [COUNT [SEED]]      default 1000000 inputs, a new seed; two processes
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
count=${1:-1000000} seed=${2:-$RANDOM$RANDOM}
python=${CANAL_HA_VENV:-$PWD/.venv}/bin/python
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

cp -r canal_ha lab tests setup.py setup.cfg pyproject.toml README.md "$copy"
cd "$copy"
find . -name '*.so' -delete
CANAL_HA_KERNEL=require CANAL_HA_CFLAGS='-O1 -g -fsanitize=address -fno-omit-frame-pointer' \
    "$python" setup.py --quiet build_ext --inplace

# Python's allocator would hide accesses beyond small objects. Leaks are ignored, because Python itself leaks at exit.
export LD_PRELOAD ASAN_OPTIONS=detect_leaks=0:abort_on_error=0 PYTHONMALLOC=malloc CANAL_HA_KERNEL=require
LD_PRELOAD=$(gcc -print-file-name=libasan.so)
half=$((count / 2))
"$python" -m tests.decode.fuzz "$seed" 0 "$half" &
"$python" -m tests.decode.fuzz "$seed" "$half" $((count - half))
wait $!
"$python" -m tests.decode.fuzz_reader "$seed" 0 $((count / 20))
