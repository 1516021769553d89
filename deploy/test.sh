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
started=() # the steps that run beside others
declare -A processes=() # of these steps, by name
outputs=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$outputs"' EXIT

is_wanted() { [[ $1 == install || $1 == services || $wanted == "  " || $wanted == *" $1 "* ]]; }

# limit BUDGET-MINUTES: prints the seconds after which a step counts as hanging and is killed: four times its budget, because
# a slow machine takes more than twice as long.
limit() { echo "$(($1 * 240 * ${CANAL_HA_SLOW:-1}))"; }

# step NAME BUDGET-MINUTES COMMAND...: runs a step and records its time and outcome.
step() {
    local name=$1 budget=$2 began=$SECONDS
    shift 2
    is_wanted "$name" || return 0
    printf '\n=== %s: %.200s\n' "$name" "$*"
    # -k: SIGKILL for processes that ignore SIGTERM; --foreground: Ctrl-C reaches the step
    timeout --foreground -k 20 "$(limit "$budget")" "$@" 2>&1 | tee "$outputs/$name"
    record "$name" "$budget" "${PIPESTATUS[0]}" $((SECONDS - began))
}

# beside NAME BUDGET-MINUTES COMMAND...: starts a step that uses what the next steps leave of the processors. If the
# command line names steps, they run one after another, and their output is seen at once.
beside() {
    local name=$1 budget=$2
    if [[ $wanted != "  " ]]; then
        step "$@"
        return
    fi
    shift 2
    printf '\n=== %s, beside the next steps: %.200s\n' "$name" "$*"
    started+=("$name $budget")
    # --default-signal: bash lets background jobs ignore Ctrl-C, and tests that send it would wait forever
    # shellcheck disable=SC2016 # the inner shell expands these
    nice -n 10 timeout -k 20 "$(limit "$budget")" env --default-signal=INT,QUIT \
        bash -c 'trap : TERM; "${@:2}"; echo "$? $SECONDS" >"$1"' bash "$outputs/$name.end" "$@" >"$outputs/$name" 2>&1 &
    processes[$name]=$!
}

# await NAME: waits until a step that runs beside others has ended.
await() {
    [[ -z ${processes[$1]:-} ]] || wait "${processes[$1]}"
}

# join: waits for the steps that run beside others, and prints and records them.
join() {
    local each name budget code took
    wait
    for each in "${started[@]}"; do
        read -r name budget <<<"$each"
        printf '\n=== %s, beside other steps\n' "$name"
        cat "$outputs/$name"
        read -r code took 2>/dev/null <"$outputs/$name.end" || { code=124 took=$(limit "$budget"); }
        record "$name" "$budget" "$code" "$took"
    done
    started=()
}

# record NAME BUDGET-MINUTES EXIT-CODE SECONDS: adds a line to the final table.
record() {
    local name=$1 budget=$2 code=$3 outcome=passed
    if ((code == 124 || code == 137 || code == 143)); then
        outcome="HANGS"
    elif ((code)); then
        outcome="FAILED ($code)"
    fi
    names+=("$name") budgets+=("$budget") seconds+=("$4") results+=("$outcome")
    summaries+=("$(grep -E '(passed|failed|error|deselected).* in [0-9.]+s' "$outputs/$name" | tail -n 1)")
}

report() {
    local i
    printf '\n%-14s %9s %9s  %s\n' step time budget result
    for i in "${!names[@]}"; do
        printf '%-14s %6d s %6d s  %s%s\n' "${names[i]}" "${seconds[i]}" "$((budgets[i] * 60))" "${results[i]}" \
            "$( ((seconds[i] <= budgets[i] * 60)) || printf ', over budget')"
    done
    printf '%-14s %6d s' all "$SECONDS"
    if [[ $wanted == "  " && -z ${CANAL_HA_LONG:-} ]]; then # steps overlap, and the whole has a budget of its own
        printf ' %6d s%s' 900 "$( ((SECONDS <= 900)) || printf '  over budget')"
    fi
    printf '\n\n'
    for i in "${!names[@]}"; do
        [[ -z ${summaries[i]} ]] || printf '%s: %s\n' "${names[i]}" "${summaries[i]}"
    done
}

# marked MARKS: prints the test files with one of these marks, as marks of pytest separated by |. A pytest that collects
# only these, as `testpaths`, starts sooner, and still counts as a run of the whole suite. tests/conftest.py checks that none is missing.
marked() { grep -rlE --include='*.py' "mark\.($1)\b" tests | sort | tr '\n' ' '; }

# again NAME BUDGET-MINUTES COMMAND...: if one to three tests of the step NAME failed, runs these once more with nothing
# beside them, because other programs on the machine can delay servers. The final table names each test that passed only
# then: it has found something, in the product or in itself.
again() {
    local name=$1 budget=$2 at failing
    shift 2
    for at in "${!names[@]}"; do
        [[ ${names[at]} != "$name" || ${results[at]} != "FAILED (1)" ]] || break
    done
    [[ ${names[at]} == "$name" && ${results[at]} == "FAILED (1)" ]] || return 0
    mapfile -t failing < <(sed -nE 's/^(FAILED|ERROR) (\S+).*/\2/p' "$outputs/$name" | sort -u)
    ((${#failing[@]} >= 1 && ${#failing[@]} <= 3)) || return 0
    wanted="  " step "$name, again" "$budget" "$@" "${failing[@]}"
    [[ ${results[-1]} != passed ]] || results[at]="passed only when run again: ${failing[*]}"
}

# some_failed: whether a step did not pass.
some_failed() {
    local each
    for each in "${results[@]}"; do
        [[ $each == passed* ]] || return 0
    done
    return 1
}

trap 'exit 130' INT TERM

# MySQL 5.6, canal-go, a browser, tools of Kubernetes and of images, and canal's own server are only for the long suites
packages=(spark docs compose ${CANAL_HA_LONG:+browser})
services=(mysql s3 java kafka peers ${CANAL_HA_LONG:+mysql56 go kubernetes image})
step install 5 bash deploy/install.sh "${packages[@]}"
if some_failed; then
    report
    exit 1
fi
# Only tests on real servers need these. They come mostly from the network, so the first steps run meanwhile.
beside services 5 bash deploy/install.sh "${packages[@]}" "${services[@]}"

step format 1 ruff format --check .
step lint 1 ruff check .
step imports 1 lint-imports
beside types 5 mypy
step docs 1 bash deploy/docs.sh
beside unit 12 env CANAL_HA_KERNEL=off pytest -n auto --dist worksteal
# The tests of decoding run with the compiled kernel too, and so does a file with a test that an interpreted one skips.
step compiled 2 env CANAL_HA_KERNEL=require pytest -n auto --dist worksteal tests/decode tests/source/snapshot/test_transaction.py
await services
# Real servers mostly wait, so more test processes than processors, each with its own servers, run beside the unit tests.
step real 12 pytest -m "(real or spark) and not timed" -o testpaths="$(marked 'real|spark')" -n $((2 * $(nproc))) \
    --dist loadgroup --no-loadscope-reorder --durations=25
join
# These assert how long something takes, so no other test runs beside them.
step timed 3 pytest -m timed -o testpaths="$(marked timed)" --durations=5
again unit 3 env CANAL_HA_KERNEL=off pytest
again real 3 pytest -m "real or spark or timed"
again timed 3 pytest -m timed
if [[ -n ${CANAL_HA_LONG:-} ]]; then
    step long 12 bash -c 'bash bench/peers/install.sh java && pytest -m long -rs --durations=5 tests/long'
    step chaos 3 python -m lab.chaos --seed "$(date +%j)" --minutes 1.5
    step exactness 8 python -m lab.exactness --seed "$(date +%j)"
    step parallel 4 python -m lab.exactness --seed "$(date +%j)" --connections 4 --mode gtid
    step xa 6 python -m lab.exactness --seed "$(date +%j)" --xa --mode position log-status
    step unsafe 3 python -m lab.exactness --unsafe-watermark --faults 0 --chunks 60
    step hostile 20 python -m lab.hostile
    step simulation 60 python -m lab.simulation --seeds 100000 --start 2000
    step mutants 30 python -m lab.mutants
    step differential 60 python -m lab.differential --statements 20000
    step pythons 60 bash deploy/pythons.sh
fi
# Both run, also if the first one fails.
step speed 2 bash -c 'python -m bench.small; small=$?; python -m bench.before && exit "$small"'
[[ -z ${CANAL_HA_LONG:-} ]] || step fuzz 10 bash deploy/fuzz.sh

report
! some_failed
