#!/bin/sh
# Writes the Python stubs of sluicegate.v1 to proto/gen (or to the folder given as $1).
# What is there is replaced only when all of it has been generated.
set -eu
cd "$(dirname "$0")"
out=${1:-gen}
mkdir -p "$out"
new=$(mktemp -d "$out/.new.XXXXXX")
trap 'rm -rf "$new"' EXIT
python -m grpc_tools.protoc -I . -I third_party \
    --python_out="$new" --grpc_python_out="$new" --mypy_out="quiet:$new" --mypy_grpc_out="quiet:$new" \
    sluicegate/v1/*.proto
touch "$new/sluicegate/__init__.py" "$new/sluicegate/v1/__init__.py"
rm -rf "$out/sluicegate"
mv "$new/sluicegate" "$out/sluicegate"
