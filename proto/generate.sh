#!/bin/sh
# Writes the Python stubs of sluicegate.v1 to proto/gen (or to the folder given as $1).
set -eu
cd "$(dirname "$0")"
out=${1:-gen}
rm -rf "$out/sluicegate"
mkdir -p "$out"
python -m grpc_tools.protoc -I . -I third_party \
    --python_out="$out" --grpc_python_out="$out" --mypy_out="quiet:$out" --mypy_grpc_out="quiet:$out" \
    sluicegate/v1/*.proto
touch "$out/sluicegate/__init__.py" "$out/sluicegate/v1/__init__.py"
