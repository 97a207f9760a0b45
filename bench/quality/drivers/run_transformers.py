"""transformers in float32: ``run_transformers MODEL MAX_TOKENS``, where ``convert_dense`` has made MODEL."""

import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from bench.quality.drivers.answering import Passes, answer


def main(folder: str) -> None:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    @torch.inference_mode()
    def logits(passes: Passes) -> NDArray[np.float32]:
        """All in one pass: in float32 it makes no difference."""
        token_ids = [token_id for of_pass in passes for token_id in of_pass]
        rows: NDArray[np.float32] = model(torch.tensor([token_ids])).logits[0].numpy()
        return rows

    answer(logits)


if __name__ == "__main__":
    main(sys.argv[1])
