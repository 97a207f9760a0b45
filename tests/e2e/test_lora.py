"""Adapters of a real server, which come and go under traffic."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sluicegate_client import AdminClient, Client, NotFoundError, SluicegateError
from tests.core.model.lora.tiny_adapter import TinyAdapter
from tests.core.model.tiny_model import TINY, TinyModel
from tests.e2e.server import Server, serving
from tests.model_files import SMOLLM2_FOLDER

PROMPT = list(range(100, 120))
NUM_TOKENS = 8
BASE = TinyModel(TINY)
A, B = TinyAdapter(BASE, seed=1), TinyAdapter(BASE, ("q_proj", "down_proj"), seed=2)


def greedy(model: TinyModel) -> list[int]:
    tokens = list(PROMPT)
    for _ in range(NUM_TOKENS):
        tokens.append(int(model.logits(tokens)[-1].argmax()))
    return tokens[len(PROMPT) :]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """With adapter a, and one at a time in a step."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SMOLLM2_FOLDER / name, tmp_path)
    BASE.write_safetensors(tmp_path)
    modules = f"a={A.write(tmp_path / 'a')}"
    with serving("--enable-lora", "--max-loras", "1", "--lora-modules", modules, model=str(tmp_path)) as server:
        yield server


def test_adapters_come_and_go_under_traffic(server: Server, tmp_path: Path) -> None:
    """Every answer is that of the model, or of the adapter it names, whatever is loaded and unloaded meanwhile."""
    expected = {None: greedy(BASE), "a": greedy(A.merged_into(BASE)), "b": greedy(B.merged_into(BASE))}
    folder = B.write(tmp_path / "b")
    with Client(server.address) as client, AdminClient(server.admin_address) as admin:

        def ask(name: str | None) -> list[int]:
            answer = client.generate(
                token_ids=PROMPT, lora_name=name, max_tokens=NUM_TOKENS, temperature=0, ignore_eos=True
            )
            return answer.outputs[0].token_ids

        with ThreadPoolExecutor(6) as threads:
            answers = [(name, threads.submit(ask, name)) for name in (None, "a") * 6]
            for number in range(2):
                admin.load_lora(f"b{number}", str(folder), timeout=60)
                assert ask(f"b{number}") == expected["b"]
                admin.unload_lora(f"b{number}", timeout=60)
            for name, answer in answers:
                assert answer.result() == expected[name]
        assert admin.list_loras() == {"a": str(tmp_path / "a")}
        with pytest.raises(NotFoundError, match="no LoRA adapter 'b1' is loaded"):
            ask("b1")
        (folder / "adapter_model.safetensors").unlink()
        with pytest.raises(SluicegateError, match=r"b/adapter_model\.safetensors: cannot be read: .*No such file"):
            admin.load_lora("b", str(folder))
        assert ask("a") == expected["a"]
