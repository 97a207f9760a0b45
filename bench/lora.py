"""What adapters cost beside the model: `python -m bench.lora [MODEL.gguf]`, CPU milliseconds per step on one thread.

A batch of requests, each with an adapter in turn: of rank 16, on every linear layer of the model.
"""

import json
import sys
import time
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file

from core.config import ModelConfig
from core.executor.interface import NewRequest
from core.model.attention.paged_kv_cache import PagedKVCache
from core.model.lora.adapters import Adapters
from core.model.model import Model
from core.model.registry import load_model
from core.model.request_state import RequestState
from core.model.span import Span
from core.model.step_batch import StepBatch
from core.wire.sampling_params import SamplingParams
from service.models import resolve_model

_RANK = 16
_CONTEXT = 128
_NUM_STEPS = 12


def main() -> None:
    torch.set_num_threads(1)
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else resolve_model("smollm2-135m", lambda _: None).path
    adapters = Adapters(_RANK)
    model = load_model(ModelConfig(path), adapters)
    with TemporaryDirectory() as folder:
        for key in range(1, 9):
            adapters.load(key, _write(adapters, Path(folder) / str(key)))
    print(
        f"{'':28}" + "".join(f"{name:>10}" for name in ("none", "1 adapter", "2", "4", "8")) + "   ms of CPU per step"
    )
    for rows, num_tokens in ((1, 1), (8, 1), (32, 1), (1, 256)):
        counts = [count for count in (0, 1, 2, 4, 8) if count <= rows]
        times = [_measure(model, adapters, rows, num_tokens, count) for count in counts]
        print(f"{f'{rows} requests, {num_tokens} tokens each':28}" + "".join(f"{t:>10.1f}" for t in times))


def _write(adapters: Adapters, folder: Path) -> Path:
    tensors = {}
    for name, (out_size, in_size) in adapters.shapes.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = torch.randn(_RANK, in_size)
        tensors[f"base_model.model.{name}.lora_B.weight"] = torch.zeros(out_size, _RANK)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": _RANK, "lora_alpha": _RANK, "target_modules": "all-linear"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


@torch.inference_mode()
def _measure(model: Model, adapters: Adapters, rows: int, num_tokens: int, num_adapters: int) -> float:
    """The least of several steps: what else runs on the machine only adds."""
    num_blocks = -(-(_CONTEXT + num_tokens) // 16)
    cache = PagedKVCache(model.architecture, rows * num_blocks + 1, 16, model.device, model.dtype)
    keys = islice(cycle(range(1, num_adapters + 1) if num_adapters else [None]), rows)
    spans = [Span(_request(row, key, num_tokens, num_blocks), _CONTEXT, num_tokens) for row, key in enumerate(keys)]
    times = []
    for _ in range(_NUM_STEPS):
        batch = StepBatch(spans, cache)
        inputs = model.embed(batch.token_ids)
        started = time.process_time()
        adapters.begin_step((span.request.lora, span.num_tokens) for span in batch.spans)
        model.forward(inputs, batch.positions, batch.attention)
        times.append((time.process_time() - started) * 1e3)
    return min(times[2:])


def _request(row: int, key: int | None, num_tokens: int, num_blocks: int) -> RequestState:
    blocks = list(range(1 + row * num_blocks, 1 + (row + 1) * num_blocks))
    tokens = [0] * (_CONTEXT + num_tokens)
    return RequestState(NewRequest(str(row), tokens, len(tokens), SamplingParams(), 0, [blocks], _CONTEXT, lora=key))


if __name__ == "__main__":
    main()
