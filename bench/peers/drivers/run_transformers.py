"""transformers' generate in float32: ``run_transformers MODEL THREADS``, where ``convert_dense`` has made MODEL.

A batch is static: it begins and ends together.
"""

import sys
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from bench.peers.drivers.serving import Batch, serve


class Engine:
    def __init__(self, model: str, num_threads: int) -> None:
        torch.set_num_threads(num_threads)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa")

    def generate(self, batch: Batch) -> None:
        def note(_input_ids: torch.Tensor, _scores: Any, **_kwargs: Any) -> torch.Tensor:
            for record in batch.records:
                record.note(1)
            return torch.zeros(len(batch.records), dtype=torch.bool)

        prompts = torch.tensor(batch.prompts)
        settings = {"do_sample": False, "max_new_tokens": batch.output_tokens, "min_new_tokens": batch.output_tokens}
        # It is asked after every token whether to stop.
        self._model.generate(prompts, attention_mask=torch.ones_like(prompts), stopping_criteria=[note], **settings)


if __name__ == "__main__":
    serve(Engine(sys.argv[1], int(sys.argv[2])).generate)
