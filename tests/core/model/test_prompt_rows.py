"""Rows of a prompt among the model's inputs."""

import numpy as np
import torch

from core.model.prompt_rows import place_rows
from core.prompt_embeds import PromptEmbeds
from core.wire.tensor import Tensor

EMBEDS = PromptEmbeds(Tensor(np.arange(12, dtype=np.float16).reshape(6, 2)), np.array([True, False, False] * 2))


def test_rows_are_put_where_there_are_any() -> None:
    """Of positions 1 to 4 of a prompt of six, in the type of the inputs; tokens keep their own."""
    inputs = torch.full((4, 2), -1.0)
    place_rows(EMBEDS, 1, inputs)
    assert inputs.tolist() == [[2, 3], [4, 5], [-1, -1], [8, 9]]


def test_what_follows_the_prompt_is_left_alone() -> None:
    """The last position of the prompt, and two of the output."""
    inputs = torch.full((3, 2), -1.0)
    place_rows(EMBEDS, 5, inputs)
    assert inputs.tolist() == [[10, 11], [-1, -1], [-1, -1]]
    place_rows(EMBEDS, 6, inputs[1:])
    assert inputs[1:].tolist() == [[-1, -1], [-1, -1]]
