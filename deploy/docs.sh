#!/usr/bin/env bash
# Builds the documentation into docs/_build. Every warning is an error, for example a broken link or a page that no menu
# lists.
#
#   bash deploy/docs.sh
#
# CANAL_HA_VENV: a virtual environment with the extra `docs` (bash deploy/install.sh docs); default: .venv.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
sphinx_build=${CANAL_HA_VENV:-.venv}/bin/sphinx-build
if [[ ! -x $sphinx_build ]]; then
    printf 'docs: %s is missing; next: bash deploy/install.sh docs\n' "$sphinx_build" >&2
    exit 1
fi
# -E: read every page again, because generated pages change with the code
"$sphinx_build" -E -W --keep-going -n -q -b html docs docs/_build/html
printf 'docs: open docs/_build/html/index.html\n'
