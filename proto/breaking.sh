#!/bin/sh
# Fails if a client of the last release could not be built or served any more: compares with the last tag v*, or where
# git knows none (a shallow clone, an archive of sources) with released.binpb, which `make contract` writes.
# The contracts of others that lie beside ours are theirs.
set -eu
cd "$(dirname "$0")"
against=released.binpb
if tag=$(git describe --tags --match 'v*' --abbrev=0 2> /dev/null); then
    # The folder proto may lie anywhere in its repository, and that may be a worktree.
    against="$(git rev-parse --path-format=absolute --git-common-dir)#tag=$tag,subdir=$(git rev-parse --show-prefix)"
fi
echo "buf breaking against $against"
buf breaking --path sluicegate --against "$against"
