#!/usr/bin/env bash
# Installs missing packages, then runs every check of this repository on real parts: MySQL, MariaDB, ZooKeeper, Java.
# A failed step does not stop the others; the exit code is 1 if any step failed.
#
#   bash deploy/test.sh             everything (what CI runs)
#   bash deploy/test.sh lint unit   some steps, by the names in the final table
#
# CANAL_HA_VENV, CANAL_HA_CACHE, CANAL_HA_PYTHON: see install.sh. CANAL_HA_LONG=1: more repetitions (test-long.sh).
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
export CANAL_HA_VENV=${CANAL_HA_VENV:-$PWD/.venv}
export PATH=$CANAL_HA_VENV/bin:$PATH PYTHONUNBUFFERED=1
# Hundreds of processes import the same modules, and each process of pytest rewrites the assertions of all tests. With
# this variable, which containers often set, all of them would compile the sources again.
unset PYTHONDONTWRITEBYTECODE

wanted=" $* "
names=() budgets=() seconds=() results=() summaries=()
failed=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# step NAME BUDGET-MINUTES COMMAND...: runs a step and records its time and outcome. A step that takes twice its budget
# counts as hanging and is killed.
step() {
    local name=$1 budget=$2 began=$SECONDS outcome=passed code
    shift 2
    [[ $name == install || $wanted == "  " || $wanted == *" $name "* ]] || return 0
    printf '\n=== %s: %s\n' "$name" "$*"
    # -k: SIGKILL for processes that ignore SIGTERM; --foreground: Ctrl-C reaches the step
    timeout --foreground -k 20 "$((budget * 120 * ${CANAL_HA_SLOW:-1}))" "$@" 2>&1 | tee "$output"
    code=${PIPESTATUS[0]}
    if ((code == 124 || code == 137)); then
        outcome="HANGS"
    elif ((code)); then
        outcome="FAILED ($code)"
    fi
    [[ $outcome == passed ]] || failed=1
    names+=("$name") budgets+=("$budget") seconds+=($((SECONDS - began))) results+=("$outcome")
    summaries+=("$(grep -E '(passed|failed|error|deselected).* in [0-9.]+s' "$output" | tail -n 1)")
}

report() {
    local i
    printf '\n%-14s %9s %9s  %s\n' step time budget result
    for i in "${!names[@]}"; do
        printf '%-14s %6d s %6d s  %s%s\n' "${names[i]}" "${seconds[i]}" "$((budgets[i] * 60))" "${results[i]}" \
            "$( ((seconds[i] <= budgets[i] * 60)) || printf ', over budget')"
    done
    printf '\n'
    for i in "${!names[@]}"; do
        [[ -z ${summaries[i]} ]] || printf '%s: %s\n' "${names[i]}" "${summaries[i]}"
    done
}

# timed BUDGET-MINUTES: runs the tests that assert how long something takes, with no other test beside them. Failed ones
# run once more, because another program on the machine can delay them, and the table names them.
timed() {
    local before=$failed failing
    step timed "$1" pytest -m timed --durations=5
    ((failed > before)) && [[ ${results[-1]} == "FAILED (1)" ]] || return 0
    failing=$(sed -n 's/^FAILED \(\S*\).*/\1/p' "$output" | tr '\n' ' ')
    wanted="  " step "timed, again" "$1" pytest -m timed --last-failed
    if [[ ${results[-1]} == passed ]]; then
        results[-2]="passed only when run again: $failing"
        failed=$before
    fi
}

trap 'exit 130' INT TERM

# MySQL 5.6, canal-go and canal's own server are only for the long suites
step install 5 bash deploy/install.sh mysql spark s3 docs java kafka peers compose ${CANAL_HA_LONG:+mysql56 go}
if ((failed)); then
    report
    exit 1
fi

step format 1 ruff format --check .
step lint 1 ruff check .
step imports 1 lint-imports
step types 3 mypy
step unit 6 env CANAL_HA_KERNEL=off pytest -n auto --dist worksteal
step docs 1 bash deploy/docs.sh
step compiled 1 env CANAL_HA_KERNEL=require pytest -n auto --dist worksteal tests/decode
# Real servers mostly wait, so three test processes, each with its own servers, share two processors.
step real 13 pytest -m "(real or spark) and not timed" -n $(($(nproc) + ($(nproc) + 1) / 2)) --dist loadgroup \
    --no-loadscope-reorder --durations=15
timed 3
if [[ -n ${CANAL_HA_LONG:-} ]]; then
    step long 12 bash -c 'bash bench/peers/install.sh java && pytest -m long -rs --durations=5 tests/long'
    step chaos 3 python -m lab.chaos --seed "$(date +%j)" --minutes 1.5
    step exactness 8 python -m lab.exactness --seed "$(date +%j)"
    step unsafe 3 python -m lab.exactness --unsafe-watermark --faults 0 --chunks 60
    step hostile 20 python -m lab.hostile
    step simulation 60 python -m lab.simulation --seeds 100000 --start 2000
    step mutants 30 python -m lab.mutants
    step differential 60 python -m lab.differential --statements 20000
fi
step speed 2 python -m bench.small
[[ -z ${CANAL_HA_LONG:-} ]] || step fuzz 10 bash deploy/fuzz.sh

report
exit "$failed"
