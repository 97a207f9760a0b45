#!/bin/sh
# embed.sh NAME MODELS TOKENIZERS: fetches a model of `sluicegate pull` into MODELS, all but its weights into TOKENIZERS.
set -eu
mkdir -p "$2" "$3"
[ -n "$1" ] || exit 0
XDG_CACHE_HOME=/tmp/cache python -c '
import sys
from service.models import resolve_model
resolve_model(sys.argv[1], lambda progress: None)' "$1"
mv "/tmp/cache/sluicegate/models/$1" "$2"
cp -r "$2/$1" "$3"
find "$3" \( -name '*.gguf' -o -name '*.safetensors' \) -delete
# The same files are the same layer, whenever they were fetched.
find "$2" "$3" -exec touch -h -d @0 {} +
