#!/bin/sh
# Writes the Python stubs of sluicegate.v1, and of the contracts of others, to proto/gen (or to the folder given as $1).
# What is there is replaced only when all of it has been generated.
set -eu
cd "$(dirname "$0")"
out=${1:-gen}
mkdir -p "$out"
new=$(mktemp -d "$out/.new.XXXXXX")
trap 'rm -rf "$new"' EXIT
generate() {
    python -m grpc_tools.protoc --python_out="$new" --grpc_python_out="$new" \
        --mypy_out="quiet:$new" --mypy_grpc_out="quiet:$new" "$@"
}
generate -I . -I third_party sluicegate/v1/*.proto
generate -I third_party third_party/inference/*.proto
# Below sluicegate, since a package called inference may well be somebody else's.
sed -i 's/^from inference import/from sluicegate.third_party.inference import/' "$new"/inference/*
mkdir "$new/sluicegate/third_party"
mv "$new/inference" "$new/sluicegate/third_party/inference"
for package in sluicegate sluicegate/v1 sluicegate/third_party sluicegate/third_party/inference; do
    touch "$new/$package/__init__.py"
done
rm -rf "$out/sluicegate"
mv "$new/sluicegate" "$out/sluicegate"
