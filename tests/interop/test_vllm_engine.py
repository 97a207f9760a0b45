"""`sluicegate serve --engine vllm` with vLLM itself."""

import tempfile
from pathlib import Path

import psutil
import pytest

from bench.server_process import ServerProcess
from sluicegate_client import Client
from tests.interop import vllm_python
from tests.interop.dense_model import write_dense_smollm2
from tests.interop.packages import CACHE
from tests.interop.program import PATIENCE_S
from tests.interop.reference import CAPITAL, NUM_TOKENS, check_tokens

pytestmark = [pytest.mark.interop, pytest.mark.vllm_python, pytest.mark.timeout(5000)]


def test_vllm_serves_behind_the_gateway_that_started_it_and_goes_when_that_is_killed(vllm_interpreter: Path) -> None:
    """The reference's tokens; afterwards no process of it is left."""
    model = write_dense_smollm2(CACHE / "smollm2-135m-float32")
    engine = ["--engine", "vllm", "--engine-python", str(vllm_interpreter), "--max-model-len", "1024"]
    with tempfile.TemporaryDirectory(prefix="sg") as folder:
        addresses = ["--grpc-address", "127.0.0.1:0", "--admin-address", f"unix:{folder}/admin"]
        addresses += ["--metrics-address", "127.0.0.1:0", "--core-load-timeout", str(vllm_python.START_TIMEOUT_S)]
        command = ["serve", str(model), *engine, *addresses, "--", "--dtype", "float32", "--enforce-eager"]
        with ServerProcess(command, environment=vllm_python.ENVIRONMENT) as server:
            with Client(server.wait_until_ready(vllm_python.START_TIMEOUT_S)) as client:
                generation = client.generate(CAPITAL["prompt_text"], temperature=0, max_tokens=NUM_TOKENS, logprobs=1)
            check_tokens(CAPITAL, generation.token_ids, [position.logprob for position in generation.logprobs])
            processes = psutil.Process(server.pid).children(recursive=True)
            server.kill()
            _gone, alive = psutil.wait_procs(processes, PATIENCE_S)
    assert len(processes) > 2
    assert not alive
