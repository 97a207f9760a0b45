"""A decoder's step as one call of the kernels: torch's logits, and the same bits however the work is cut."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType as Q
from torch import Tensor

from core.config import ModelConfig
from core.model.model import Model
from core.model.registry import load_model
from core.model.threads import num_threads
from core.native import runnable_kernels
from core.native.kernels import Kernels
from tests.core.model.steps import Steps
from tests.core.model.tiny_families import TINY_FAMILIES, TinyFamily, write_gguf
from tests.core.model.tiny_model import random_tokens

SIZES = {"hidden_size": 128, "intermediate_size": 96, "head_dim": 32, "max_position_embeddings": 1024}
"""Whole registers, and whole blocks of weights."""
FAMILIES = {name: tiny._replace(settings={**tiny.settings, **SIZES}) for name, tiny in TINY_FAMILIES.items()}
FAMILIES["llama, biases, a head size of its own"].settings["head_dim"] = 96
FAMILIES["mistral, a window of several segments"] = TinyFamily("mistral", {**SIZES, "sliding_window": 300}, None)
FAMILIES["llama, three heads for each of two"] = TinyFamily(
    "llama", {**SIZES, "hidden_size": 192, "num_attention_heads": 6}, None
)
OF_GGUF = {name: tiny for name, tiny in FAMILIES.items() if tiny.gguf_arch is not None}
PROMPTS = [random_tokens(length, 160, length) for length in (300, 65, 33, 16, 1)]
"""The first one's keys are in two segments, the others' in less than one."""
LONG = [random_tokens(length, 160, length) for length in (700, 520)]
TOLERANCE = 1e-4
"""Of logits of about 5: float32 against float32 through three layers."""
Deal = Callable[[Steps], Iterator[dict[int, int]]]


def all_at_once(steps: Steps) -> Iterator[dict[int, int]]:
    yield steps.left


def in_chunks(steps: Steps) -> Iterator[dict[int, int]]:
    """Of seven tokens, one prompt after the other."""
    while left := steps.left:
        number, count = next(iter(left.items()))
        yield {number: min(count, 7)}


def token_by_token(steps: Steps) -> Iterator[dict[int, int]]:
    while left := steps.left:
        yield dict.fromkeys(left, 1)


def mixed(steps: Steps) -> Iterator[dict[int, int]]:
    """Single tokens beside chunks, in every order; some requests wait."""
    dice = random.Random(0)
    while left := steps.left:
        chosen = dice.sample(list(left), dice.randint(1, len(left)))
        yield {number: min(left[number], dice.choice((1, 1, 1, 2, 5, 24, 50, 130))) for number in chosen}


DEALS: list[Deal] = [all_at_once, in_chunks, token_by_token, mixed]


def logits_of(
    model: Model, deal: Deal, prompts: Sequence[list[int]], block_size: int = 16, backend: str = "native"
) -> list[Tensor]:
    steps = Steps(model, prompts, block_size, backend)
    for counts in deal(steps):
        steps.step(counts)
    return steps.logits()


def load_gguf(family: TinyFamily, folder: Path, kind: Q, name: str, quantization: str = "auto") -> Model:
    assert family.gguf_arch is not None
    path = folder / f"{kind.name}.gguf"
    write_gguf(family.write(folder), family.gguf_arch, path, kind)
    return load_model(ModelConfig(path=path, kernels=name, quantization=quantization))


def check_same_bits(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.isfinite().all()
        assert torch.equal(one, other)


@pytest.fixture(params=FAMILIES.values(), ids=FAMILIES, scope="module")
def family(request: pytest.FixtureRequest) -> TinyFamily:
    tiny: TinyFamily = request.param
    return tiny


@pytest.fixture(scope="module")
def folder(family: TinyFamily, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model in float32."""
    folder: Path = tmp_path_factory.mktemp("tiny")
    family.write(folder)
    return folder


@pytest.fixture(scope="module")
def by_torch(folder: Path) -> list[Tensor]:
    model = load_model(ModelConfig(path=folder, kernels="torch"))
    return logits_of(model, all_at_once, PROMPTS, backend="torch")


@pytest.fixture(params=runnable_kernels(), scope="module")
def name(request: pytest.FixtureRequest) -> str:
    """Of kernels that this machine can run."""
    kernels: str = request.param
    return kernels


@pytest.fixture(scope="module")
def model(folder: Path, name: str) -> Model:
    return load_model(ModelConfig(path=folder, kernels=name))


@pytest.mark.parametrize("block_size", [16, 32, 64])
@pytest.mark.parametrize("deal", DEALS)
def test_logits_are_those_of_torch(model: Model, by_torch: list[Tensor], deal: Deal, block_size: int) -> None:
    """In float32, of every position, with blocks of any size that are anywhere and hold NaN where nothing is yet."""
    for found, expected in zip(logits_of(model, deal, PROMPTS, block_size), by_torch, strict=True):
        torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0)


def test_a_long_context_is_added_up_segment_by_segment(folder: Path, model: Model) -> None:
    """Keys of three segments, whether a thread has them all or several share them out; windows across two."""
    by_torch = load_model(ModelConfig(path=folder, kernels="torch"))
    found, *others = (logits_of(model, deal, LONG) for deal in (all_at_once, mixed))
    for logits, expected in zip(found, logits_of(by_torch, all_at_once, LONG, backend="torch"), strict=True):
        torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=0)
    for other in others:
        check_same_bits(other, found)


def check_every_cut(model: Model, kernels: Kernels) -> None:
    """Alone is how each prompt's bits are found; then together."""
    alone = [logits_of(model, all_at_once, [prompt])[0] for prompt in PROMPTS]
    for deal in DEALS:
        check_same_bits(logits_of(model, deal, PROMPTS), alone)
    check_same_bits(logits_of(model, mixed, PROMPTS, block_size=64), alone)
    try:
        for count, deal in ((2, mixed), (3, all_at_once)):
            kernels.set_num_threads(count)
            check_same_bits(logits_of(model, deal, PROMPTS), alone)
    finally:
        kernels.set_num_threads(num_threads())


def test_a_request_has_its_bits_in_every_batch(model: Model) -> None:
    """In float32: alone or with others, whole or in chunks, in blocks of any size, on any number of threads."""
    assert model.kv_dtype == torch.float32
    assert model.native_kernels is not None
    check_every_cut(model, model.native_kernels)


def test_nan_stays_in_its_request(model: Model) -> None:
    """What is no number in one request's rows changes no bit of those computed with it."""
    expected, spoiled = Steps(model, PROMPTS, backend="native"), Steps(model, PROMPTS, backend="native", spoiled=[1])
    for steps in (expected, spoiled):
        for counts in mixed(steps):
            steps.step(counts)
    for number, (found, other) in enumerate(zip(spoiled.logits(), expected.logits(), strict=True)):
        assert found.isnan().all() if number == 1 else torch.equal(found, other)


@pytest.mark.parametrize(
    ("family", "kind"),
    [(FAMILIES["llama"], Q.Q8_0), *((tiny, Q.Q4_1) for tiny in OF_GGUF.values())],
    ids=["llama in Q8_0", *OF_GGUF],
)
def test_a_request_has_its_bits_in_every_batch_with_quantized_weights(
    tmp_path: Path, family: TinyFamily, kind: Q, name: str
) -> None:
    """And keys and values in float16."""
    model = load_gguf(family, tmp_path, kind, name)
    assert model.kv_dtype == torch.float16
    assert model.native_kernels is not None
    check_every_cut(model, model.native_kernels)


@pytest.mark.parametrize("family", OF_GGUF.values(), ids=OF_GGUF)
def test_quantized_weights_give_nearly_what_they_give_in_float32(tmp_path: Path, family: TinyFamily, name: str) -> None:
    """Activations of 8 bits are what is left: with torch's attention they are nearly the same."""
    model, exact = (load_gguf(family, tmp_path, Q.Q4_1, name, quantization) for quantization in ("auto", "none"))
    found = logits_of(model, all_at_once, PROMPTS)
    by_torch = logits_of(model, all_at_once, PROMPTS, backend="torch")
    in_float32 = logits_of(exact, all_at_once, PROMPTS)
    for logits, same, other in zip(found, by_torch, in_float32, strict=True):
        assert (logits - same).norm() < 0.03 * same.norm()
        assert (logits - other).norm() < 0.1 * other.norm()
