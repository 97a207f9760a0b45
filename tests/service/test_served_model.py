"""service.served_model: the gateway's knowledge of a model, from its folder."""

import shutil
from pathlib import Path

import msgspec
import pytest

from service.generation_config import GenerationConfig
from service.models import ModelError, ModelFiles
from service.served_model import ModelText, ServedModel
from tests.service.fake_core import READY


def test_smollm2_is_known(smollm2: ServedModel) -> None:
    """Name, vocabulary and end of sequence, out of the GGUF; what its authors recommend."""
    assert (smollm2.name, smollm2.vocab_size, smollm2.max_model_len) == ("smollm2-135m", 49_152, 8192)
    assert smollm2.generation_config == GenerationConfig(temperature=0.2, top_p=0.9, eos_token_ids=(2,))
    assert smollm2.tokenizer.eos_token_id == 2


@pytest.mark.parametrize(("own", "longest"), [(None, 1024), (100, 100), (5000, 1024)])
def test_limits_are_the_engine_s_or_lower(byte_model: ModelFiles, own: int | None, longest: int) -> None:
    """The gateway's max_model_len cannot exceed the engine's."""
    engine = msgspec.structs.replace(READY, data_parallel_size=2)
    model = ModelText.load(byte_model).served_by(engine, own)
    assert (model.name, model.vocab_size) == ("bytes", 257)
    assert (model.max_model_len, model.data_parallel_size) == (longest, 2)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer.json", b"{}", "tokenizer.json"),
        ("tokenizer.json", b"\xff", "tokenizer.json"),
        ("tokenizer_config.json", b"[", "tokenizer_config.json"),
        ("tokenizer_config.json", b'{"eos_token": {"contents": "x"}}', "tokenizer_config.json"),
        ("tokenizer_config.json", b'{"chat_template": [1]}', "tokenizer_config.json"),
        ("chat_template.jinja", b"\xff", "chat_template.jinja"),
        ("config.json", b"[" * 100_000, "config.json"),
        ("config.json", b'{"vocab_size": "many"}', "vocab_size must be a whole number in .*, got 'many'"),
        ("config.json", b'{"vocab_size": 0}', r"vocab_size must be a whole number in \[1, 4194304\], got 0"),
        ("config.json", b'{"vocab_size": 1' + 50 * b"0" + b"}", r"in \[1, 4194304\], got 10000.*\.\.\..*000"),
        ("tokenizer_config.json", b'{"chat_template": "a\\n{% if %}"}', "the chat template is broken in line 2: "),
        ("config.json", b'{"text_config": 5}', "text_config must be an object, got int"),
        ("generation_config.json", b'"x"', "generation_config.json"),
    ],
)
def test_broken_file_is_named(byte_model: ModelFiles, tmp_path: Path, file: str, content: bytes, message: str) -> None:
    """Whatever is wrong with it: one error that names the file."""
    folder = shutil.copytree(byte_model.tokenizer_folder, tmp_path / "model")
    (folder / file).write_bytes(content)
    with pytest.raises(ModelError, match=message):
        ModelText.load(ModelFiles("m", folder, folder))


def test_ends_that_are_no_tokens_are_left_out(byte_model: ModelFiles, tmp_path: Path) -> None:
    """As ids outside the vocabulary are."""
    folder = shutil.copytree(byte_model.tokenizer_folder, tmp_path / "model")
    (folder / "generation_config.json").write_text('{"eos_token_id": ["x", null, 7, 1.5, 999, true]}')
    assert ModelText.load(ModelFiles("m", folder, folder)).generation_config.eos_token_ids == (256, 7)
