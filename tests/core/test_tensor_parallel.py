"""A core whose model several processes share, on one host and on two: the same tokens, and the same end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil

from core.config import ModelConfig
from core.model.registry import load_model
from core.model.runner import ModelRunner
from tests.core.executor.test_multi_process import wait_for_ends
from tests.core.executor.test_remote_ranks import free_port
from tests.core.front_end import ENDLESS, PATIENCE_S, ROOT, CoreProcess, FrontEnd, make_request
from tests.core.model.driver import GREEDY, Ask, Driver
from tests.core.model.tiny_model import TINY, TinyModel
from tests.model_files import SMOLLM2_CASES, find_smollm2

NUM_TOKENS = 12
FLAGS = ("--tensor-parallel-size", "2", "--kv-cache-memory", "64MiB")
IN_FLOAT32 = ("--quantization", "none")
"""As the reference was computed."""
DRAFTING = ("--num-speculative-tokens", "3", "--prompt-lookup-min", "1")


def generate(front_end: FrontEnd, prompt: list[int], request_id: str = "a") -> list[int]:
    """The first greedy tokens."""
    request = make_request(request_id, temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    front_end.send_request(msgspec.structs.replace(request, prompt_token_ids=prompt))
    outputs = front_end.receive_until_finished(request_id)[request_id]
    return [token_id for output in outputs for token_id in output.new_token_ids]


def test_two_ranks_give_the_references_tokens_and_one_that_dies_is_the_cores_end(tmp_path: Path) -> None:
    """Nine heads in groups of three: one rank has six of them. They draft, too.

    The front end hears of the death; no process is left.
    """
    with (
        FrontEnd(tmp_path) as front_end,
        CoreProcess(front_end.address, str(find_smollm2()), *FLAGS, *IN_FLOAT32, *DRAFTING, module="core") as core,
    ):
        front_end.receive_hello()
        front_end.send_init()
        response = front_end.receive_ready_response()
        assert (response.world_size, response.tensor_parallel_size, response.data_parallel_size) == (2, 2, 1)
        front_end.receive_hello()
        for case in sorted(SMOLLM2_CASES, key=lambda case: len(case["prompt_token_ids"]))[:2]:
            tokens = generate(front_end, case["prompt_token_ids"], case["name"])
            assert tokens[: len(case["greedy_token_ids"])] == case["greedy_token_ids"][:NUM_TOKENS]
        ranks = psutil.Process(core.process.pid).children()
        assert [rank.cmdline()[0] for rank in ranks] == ["sluicegate: rank 0", "sluicegate: rank 1"]
        front_end.add("endless", temperature=0.0, max_tokens=ENDLESS, ignore_eos=True)
        front_end.receive_first("endless")
        os.kill(ranks[1].pid, signal.SIGKILL)
        front_end.receive_dead()
        assert core.wait() == 1
        assert "rank 1 is gone: signal 9 (Killed)" in core.log
        wait_for_ends([rank.pid for rank in ranks])


def test_two_hosts(tmp_path: Path) -> None:
    """One is told of the other as in a LeaderWorkerSet, the other as by torchrun; SIGTERM to the core ends both."""
    TinyModel(TINY).write_safetensors(tmp_path)
    ask, port = Ask("a", [1, 2, 3, 4, 5], GREEDY), str(free_port())
    Driver(ModelRunner(load_model(ModelConfig(tmp_path)))).run([ask], NUM_TOKENS)
    leader = {"LWS_LEADER_ADDRESS": "127.0.0.1", "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "0"}
    worker = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "core", str(tmp_path), "--headless", *FLAGS]
    with (
        subprocess.Popen(command, cwd=ROOT, env={**os.environ, **worker}) as other,
        FrontEnd(tmp_path) as front_end,
        CoreProcess(
            *(front_end.address, str(tmp_path), *FLAGS, "--master-port", port), module="core", variables=leader
        ) as core,
    ):
        front_end.accept()
        assert generate(front_end, ask.prompt) == ask.output
        core.terminate()
        assert (core.wait(), other.wait(PATIENCE_S)) == (0, 0)
