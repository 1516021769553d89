#!/usr/bin/env bash
# The suites of test.sh with many more repetitions: crashes, fail-overs, random workloads. Takes hours, not minutes.
#
#   bash deploy/test-long.sh [STEP...]
exec env CANAL_HA_LONG=1 CANAL_HA_SLOW=20 bash "$(dirname "${BASH_SOURCE[0]}")/test.sh" "$@"
