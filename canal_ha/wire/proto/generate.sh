#!/usr/bin/env bash
# Writes the *_pb2.py and *_pb2.pyi beside the schemas, or into the directory given. Needs the `dev` extra.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
out=${1:-$root}
python=${PYTHON:-python}
cd "$root"
PATH=$(dirname "$("$python" -c 'import sys; print(sys.executable)')"):$PATH
"$python" -m grpc_tools.protoc -I . --python_out="$out" --mypy_out=quiet:"$out" canal_ha/wire/proto/*.proto
