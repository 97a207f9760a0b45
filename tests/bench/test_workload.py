import pytest

from bench.workload import WORKLOADS, Workload


def test_the_named_workloads_are_those_of_the_specification() -> None:
    """Prompt tokens, output tokens and concurrency of W1 to W4."""
    assert {
        name: (load.prompt_tokens, load.output_tokens, load.concurrency)
        for name, load in WORKLOADS.items()
        if name.startswith("W")
    } == {"W1": (128, 128, 1), "W2": (128, 128, 32), "W3": (1800, 32, 1), "W4": (1056, 16, 16)}
    assert WORKLOADS["W4"].shared_prefix_tokens == 1024


def test_a_shared_prefix_leaves_something_of_its_own_to_every_prompt() -> None:
    """Otherwise the prompts would be equal; the error names both numbers."""
    with pytest.raises(ValueError, match=r"less than prompt_tokens \(8\), got 8"):
        Workload("x", prompt_tokens=8, output_tokens=1, num_requests=1, shared_prefix_tokens=8)
