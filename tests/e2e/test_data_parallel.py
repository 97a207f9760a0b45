"""Two cores of a real model behind one gateway."""

import re

import psutil
import pytest

from sluicegate_client import Client, FinishReason, UnavailableError
from tests.e2e.server import EXIT_TIMEOUT_S, serving
from tests.model_files import SMOLLM2_CASES

CASES = [case for case in SMOLLM2_CASES if "prompt_text" in case and min(case["top1_margin"]) > 0.1][:1]
STORY = "Once upon a time there was a gate that let every stream through, one after the other, as fast as it could. "


def test_two_cores_share_the_requests() -> None:
    """Each gives the reference's tokens; a prompt goes where it was computed; one that is killed ends its own only."""
    flags = "--data-parallel-size", "2", "--kv-cache-memory", "64MiB", "--max-core-restarts", "0"
    with serving(*flags) as server, Client(server.address) as client:
        assert CASES
        for rank in (0, 1):
            for case in CASES:
                expected = case["greedy_token_ids"][:16]
                generation = client.generate(
                    case["prompt_text"], temperature=0, max_tokens=len(expected), data_parallel_rank=rank, logprobs=0
                )
                assert generation.token_ids == expected, (case["name"], rank)

        cached = [client.generate(STORY, max_tokens=1).usage.num_cached_tokens for _ in range(4)]
        assert cached[0] == 0
        assert all(cached[1:])
        load = server.load()
        assert [rank.rank for rank in load.ranks if rank.is_answering] == [0, 1]
        assert load.num_kv_blocks == sum(rank.num_kv_blocks for rank in load.ranks)

        kept = client.stream(STORY, max_tokens=16, ignore_eos=True, data_parallel_rank=1)
        lost = client.stream(STORY, max_tokens=4000, ignore_eos=True, data_parallel_rank=0)
        next(kept)
        next(lost)
        first_core, _ = re.findall(r"core started, pid ([0-9]+)", server.process.log)
        psutil.Process(int(first_core)).kill()
        with pytest.raises(UnavailableError) as unavailable:
            list(lost)
        assert unavailable.value.retry_after is not None
        list(kept)
        assert kept.finished[0].finish_reason is FinishReason.LENGTH
        assert server.process.wait(EXIT_TIMEOUT_S) == 1
