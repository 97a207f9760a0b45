"""OpenVINO GenAI's ContinuousBatchingPipeline on the GGUF: ``run_openvino MODEL.gguf THREADS``."""

import sys
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

from bench.peers.drivers.serving import Batch, Record, serve

_CACHE_GB = 2
_MAX_NUM_BATCHED_TOKENS = 2048
_MAX_NUM_SEQS = 32


class Engine:
    def __init__(self, model: str, num_threads: int) -> None:
        scheduling = genai.SchedulerConfig()
        scheduling.cache_size = _CACHE_GB
        scheduling.enable_prefix_caching = True
        scheduling.max_num_batched_tokens = _MAX_NUM_BATCHED_TOKENS
        scheduling.max_num_seqs = _MAX_NUM_SEQS
        properties = {"INFERENCE_NUM_THREADS": num_threads}
        self._pipeline = genai.ContinuousBatchingPipeline(model, scheduling, "CPU", properties)
        self._next_id = 0

    def generate(self, batch: Batch) -> None:
        settings = genai.GenerationConfig()
        settings.max_new_tokens = settings.min_new_tokens = batch.output_tokens
        settings.ignore_eos = True
        settings.do_sample = False
        handles = [(self._add(prompt, settings), record) for prompt, record in self._requests(batch)]
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for handle, record in handles:
                if handle.can_read():
                    record.note(sum(len(output.generated_ids) for output in handle.read().values()))

    def _requests(self, batch: Batch) -> list[tuple[list[int], Record]]:
        return [([*prompt], record) for prompt, record in zip(batch.prompts, batch.records, strict=True)]

    def _add(self, prompt: list[int], settings: genai.GenerationConfig) -> Any:
        self._next_id += 1
        return self._pipeline.add_request(self._next_id, openvino.Tensor(np.array([prompt], np.int64)), settings)


if __name__ == "__main__":
    serve(Engine(sys.argv[1], int(sys.argv[2])).generate)
