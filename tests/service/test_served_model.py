"""service.served_model: the gateway's knowledge of a model, from its folder."""

from service.generation_config import GenerationConfig
from service.served_model import ServedModel


def test_smollm2_is_known(smollm2: ServedModel) -> None:
    """Name, vocabulary and end of sequence, out of the GGUF."""
    assert (smollm2.name, smollm2.vocab_size, smollm2.max_model_len) == ("smollm2-135m", 49_152, 8192)
    assert smollm2.generation_config == GenerationConfig(eos_token_ids=(2,))
    assert smollm2.tokenizer.eos_token_id == 2
