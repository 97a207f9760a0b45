"""CTranslate2's Generator: ``run_ctranslate2 MODEL THREADS``, where ``convert_ctranslate2`` has made MODEL.

A batch is static: it begins and ends together. What its prompts share is given as the static prompt, whose state the
generator keeps for the next batch.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import ctranslate2

from bench.peers.drivers.serving import Batch, serve


class Engine:
    def __init__(self, model: Path, num_threads: int) -> None:
        self._tokens: list[str] = json.loads((model / "vocabulary.json").read_text())
        self._generator = ctranslate2.Generator(
            str(model), compute_type="int8", inter_threads=1, intra_threads=num_threads
        )

    def generate(self, batch: Batch) -> None:
        def note(step: ctranslate2.GenerationStepResult) -> bool:
            batch.records[step.batch_id].note(1)
            return False

        shared = batch.shared_prefix_tokens
        self._generator.generate_batch(
            [self._named(prompt[shared:]) for prompt in batch.prompts],
            static_prompt=self._named(batch.prompts[0][:shared]) or None,
            # The end token is suppressed up to the minimum.
            min_length=batch.output_tokens,
            max_length=batch.output_tokens,
            sampling_topk=1,
            beam_size=1,
            include_prompt_in_result=False,
            callback=note,
        )

    def _named(self, token_ids: Sequence[int]) -> list[str]:
        return [self._tokens[token_id] for token_id in token_ids]


if __name__ == "__main__":
    serve(Engine(Path(sys.argv[1]), int(sys.argv[2])).generate)
