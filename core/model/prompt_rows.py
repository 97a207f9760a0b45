"""The rows of a prompt, as torch has them."""

import numpy as np
import torch
from torch import Tensor

from core.prompt_embeds import PromptEmbeds


def place_rows(embeds: PromptEmbeds, start: int, inputs: Tensor) -> None:
    """Over ``inputs`` [tokens, hidden_size], those of the positions from ``start`` on, the rows that belong there."""
    places = np.flatnonzero(~embeds.is_token[start : start + len(inputs)])
    rows = torch.from_numpy(embeds.rows.array[start + places])  # a copy: what came over the wire is read-only
    if embeds.rows.dtype == "bfloat16":
        rows = rows.view(torch.bfloat16)
    inputs[torch.from_numpy(places).to(inputs.device)] = rows.to(inputs)
