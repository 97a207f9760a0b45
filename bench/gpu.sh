#!/bin/sh
# What a machine with a GPU shows: the CPU's tokens, then the speed of W1-W3 and of a crowd, in float32 and in bfloat16.
#
#   bench/gpu.sh [MODEL [DEVICE]]      smollm2-135m on cuda, unless said otherwise; about five minutes
#
# Then the same with attention by FlashAttention, compared with torch's own in bfloat16.
#
# Needs a torch that was built for the GPU: `pip install torch` on Linux takes such a one.
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python
[ -x "$python" ] || python=python3
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
"$python" -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda, "GPUs", torch.cuda.device_count())'
"$python" -m bench.device "${1:-smollm2-135m}" --device "${2:-cuda}"
"$python" -m bench.device "${1:-smollm2-135m}" --device "${2:-cuda}" --dtype bfloat16 --flash
