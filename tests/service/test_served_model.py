"""service.served_model: the gateway's knowledge of a model, from its folder."""

import msgspec
import pytest

from service.generation_config import GenerationConfig
from service.models import ModelFiles
from service.served_model import ModelText, ServedModel
from tests.service.fake_core import READY


def test_smollm2_is_known(smollm2: ServedModel) -> None:
    """Name, vocabulary and end of sequence, out of the GGUF."""
    assert (smollm2.name, smollm2.vocab_size, smollm2.max_model_len) == ("smollm2-135m", 49_152, 8192)
    assert smollm2.generation_config == GenerationConfig(eos_token_ids=(2,))
    assert smollm2.tokenizer.eos_token_id == 2


@pytest.mark.parametrize(("own", "longest"), [(None, 1024), (100, 100), (5000, 1024)])
def test_limits_are_the_engine_s_or_lower(byte_model: ModelFiles, own: int | None, longest: int) -> None:
    """The gateway's max_model_len cannot exceed the engine's."""
    engine = msgspec.structs.replace(READY, data_parallel_size=2)
    model = ModelText.load(byte_model).served_by(engine, own)
    assert (model.name, model.vocab_size) == ("bytes", 257)
    assert (model.max_model_len, model.data_parallel_size) == (longest, 2)
