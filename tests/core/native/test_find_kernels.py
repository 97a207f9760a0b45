"""Which kernels there are on this machine."""

import platform

import pytest
import torch

from core.native import find_kernels, runnable_kernels


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
