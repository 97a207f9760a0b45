"""`sluicegate serve` with an embedding model."""

from pathlib import Path

import numpy as np
import pytest
import torch

from sluicegate_client import Client, InvalidRequestError, NotSupportedError
from tests.e2e.server import serving
from tests.tiny_encoder import MAX_TOKENS, SIZE, write_tiny_encoder


def test_a_text_becomes_its_vector(tmp_path: Path) -> None:
    """The one that transformers computes, of length 1; what cannot be is refused by name; text is not generated."""
    model = write_tiny_encoder(tmp_path)
    with serving(model=str(tmp_path)) as server, Client(server.address) as client:
        with torch.inference_mode():
            expected = model(torch.tensor([[2, 4, 5, 6, 7, 8, 3]])).last_hidden_state[0].mean(0).numpy()
        vector = client.embed("How do I bake bread")
        np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=1e-5)
        assert client.embed(token_ids=[2, 4, 5, 6, 7, 8, 3]) == vector
        np.testing.assert_allclose(client.embed("How do I bake bread", normalize=False), expected, atol=1e-5)
        assert len(client.embed("bread", dimensions=4)) == 4
        with pytest.raises(InvalidRequestError, match=f"must have at most max_model_len \\({MAX_TOKENS}\\)"):
            client.embed("bread " * 20)
        with pytest.raises(InvalidRequestError, match=f"must be in \\[1, {SIZE}\\], got 99"):
            client.embed("bread", dimensions=99)
        with pytest.raises(NotSupportedError, match="embeds texts and generates none"):
            client.generate("bread")
        assert server.wait_until_idle().num_requests == 0


def test_a_model_that_generates_does_not_embed(client: Client) -> None:
    """It says so instead of passing the request on to a core that may not survive it."""
    with pytest.raises(NotSupportedError, match="the model cannot embed, it can: generate"):
        client.embed("bread")
