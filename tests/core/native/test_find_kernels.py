"""Which kernels there are on this machine, and what is done without any."""

import logging
import platform
import sys
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType

from core.config import ModelConfig
from core.model.registry import load_model
from core.native import find_kernels, runnable_kernels
from tests.core.model.steps import Steps
from tests.core.model.tiny_model import TINY_NATIVE, TinyModel, random_tokens


def test_what_can_run_is_what_torch_says() -> None:
    """Both instruction sets are looked for, on the one kind of machine that has them."""
    runs = {"avx512": torch.cpu._is_vnni_supported(), "avx2": torch.cpu._is_avx2_supported()}
    expected = [name for name, does_run in runs.items() if does_run]
    assert runnable_kernels() == (expected if platform.machine() in ("x86_64", "AMD64") else [])


def test_auto_is_the_fastest() -> None:
    """By its name, which says its instruction set."""
    found, names = find_kernels(), runnable_kernels()
    assert (found.__name__ if found else None) == (f"core.native._{names[0]}" if names else None)


def test_torch_is_none_of_ours() -> None:
    """Asked for by its name."""
    assert find_kernels("torch") is None


def test_a_name_that_is_none_is_told() -> None:
    """With those there are."""
    with pytest.raises(ValueError, match=r"kernels must be one of auto, avx512, avx2, torch, got 'sse'"):
        find_kernels("sse")


@pytest.fixture
def without_built_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there was no compiler: an import finds nothing."""
    for name in ("avx512", "avx2"):
        monkeypatch.setitem(sys.modules, f"core.native._{name}", None)


@pytest.mark.usefixtures("without_built_modules")
def test_without_built_modules_torch_computes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All of it, quantized files too, and the log says what that costs."""
    tiny, prompt = TinyModel(TINY_NATIVE), random_tokens(20, TINY_NATIVE.vocab_size)
    tiny.write_gguf(tmp_path / "tiny.gguf", GGMLQuantizationType.Q8_0)
    with caplog.at_level(logging.WARNING, "core.native"):
        model = load_model(ModelConfig(path=tmp_path / "tiny.gguf"))
    assert [
        name for name in runnable_kernels() if f"kernels {name} cannot be used" in caplog.text
    ] == runnable_kernels()
    assert model.native_kernels is None
    assert model.kv_dtype == torch.float32
    steps = Steps(model, [prompt])
    steps.step(steps.left)
    (logits,) = steps.logits()
    expected = tiny.logits(prompt)
    assert (logits - expected).norm() < 0.1 * expected.norm()


@pytest.mark.usefixtures("without_built_modules")
@pytest.mark.parametrize("name", runnable_kernels())
def test_kernels_that_were_not_built_are_told(name: str) -> None:
    """To who asks for them by name."""
    with pytest.raises(ValueError, match=f"kernels '{name}' were not built: there was no C.. compiler"):
        find_kernels(name)


@pytest.mark.parametrize("told", ["", "processor : 0\nflags\t\t: fpu sse4_2 avx\n", None])
def test_on_a_cpu_without_the_instructions_torch_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str | None
) -> None:
    """Or one that tells nothing; kernels asked for by name are refused."""
    if told is not None:
        (tmp_path / "cpuinfo").write_text(told)
    monkeypatch.setattr("core.native._CPU_INFO", tmp_path / "cpuinfo")
    assert runnable_kernels() == []
    assert find_kernels() is None
    with pytest.raises(ValueError, match="kernels must be what this CPU can run, torch, got 'avx2'"):
        find_kernels("avx2")
