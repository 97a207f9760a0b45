"""llama.cpp's kernels on the file as it is, with its default settings: ``run_llama MODEL.gguf MAX_TOKENS``."""

import sys

import numpy as np
from llama_cpp import Llama
from numpy.typing import NDArray

from bench.quality.drivers.answering import Passes, answer


def main(gguf: str, max_tokens: int) -> None:
    model = Llama(gguf, n_ctx=max_tokens, n_batch=max_tokens, logits_all=True, verbose=False)

    def logits(passes: Passes) -> NDArray[np.float32]:
        model.reset()
        for token_ids in passes:
            model.eval(token_ids)
        rows: NDArray[np.float32] = model.scores[: model.n_tokens]
        return rows

    answer(logits)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
