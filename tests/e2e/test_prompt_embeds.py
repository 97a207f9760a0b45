"""Prompts given as embeddings, over gRPC: the model's own give the tokens of the tokens."""

import asyncio

import numpy as np
import pytest
import torch

from core.model.weights.open_weights import open_weights
from sluicegate_client import AsyncClient, Client, Generation, InvalidRequestError
from sluicegate_client.requests import GenerateOptions
from tests.e2e.server import Server, serving
from tests.model_files import SMOLLM2_CASES, find_smollm2

PROMPT: list[int] = next(case["prompt_token_ids"] for case in SMOLLM2_CASES if 17 < len(case["prompt_token_ids"]) < 60)
GREEDY: GenerateOptions = {"temperature": 0, "max_tokens": 3}


def embeddings(token_ids: list[int]) -> np.ndarray:
    """The model's own, float32."""
    source = open_weights(find_smollm2())
    shape = (source.architecture.vocab_size, source.architecture.hidden_size)
    return np.asarray(source.row_table("model.embed_tokens.weight", shape)(torch.tensor(token_ids)))


async def _both(address: str, token_ids: list[int]) -> list[Generation]:
    async with AsyncClient(address) as client:
        by_row = client.generate(prompt_embeds=embeddings(token_ids), **GREEDY)
        return await asyncio.gather(client.generate(token_ids=token_ids, **GREEDY), by_row)


def test_embeddings_give_the_tokens_of_the_tokens(server: Server, client: Client) -> None:
    """Beside the same as tokens, and found in the prefix cache; they count as tokens, and have none to echo."""
    by_token, by_row = asyncio.run(_both(server.address, PROMPT))
    again = client.generate(prompt_embeds=embeddings(PROMPT), echo_prompt_token_ids=True, **GREEDY)
    assert by_row.token_ids == again.token_ids == by_token.token_ids
    assert by_row.text == by_token.text
    assert by_row.usage.num_prompt_tokens == len(PROMPT)
    assert again.usage.num_cached_tokens == (len(PROMPT) - 1) // 16 * 16
    assert again.prompt_token_ids == []


def test_embeddings_that_are_none_are_refused(client: Client) -> None:
    """By the gateway or, if one must look at every number, by the core."""
    rows = embeddings(PROMPT)
    with pytest.raises(InvalidRequestError, match="576, the model's hidden size, got 8"):
        client.generate(prompt_embeds=rows[:, :8])
    rows[1, 2] = np.nan
    with pytest.raises(InvalidRequestError, match="finite, got NaN or infinity at position 1, column 2"):
        client.generate(prompt_embeds=rows)


def test_large_embeddings_go_through_shared_memory() -> None:
    """A little more than 1 MiB, computed in two steps."""
    token_ids = (PROMPT * 500)[:456]
    with serving("--tensor-ipc", "shm", "--max-num-batched-tokens", "512") as server:
        by_token, by_row = asyncio.run(_both(server.address, token_ids))
        assert by_row.token_ids == by_token.token_ids
        assert "no shared memory" not in server.process.log
