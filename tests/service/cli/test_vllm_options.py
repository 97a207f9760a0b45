"""What `serve` says to vLLM, and what it refuses to."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from service.cli.gateway_options import GatewaySettings
from service.cli.serve import serve
from service.cli.vllm_options import VllmSettings
from service.config import CoreTerms, LimitsConfig, ListenConfig


def test_what_the_gateway_knows_comes_before_what_the_user_says() -> None:
    """So that the user has the last word."""
    settings = GatewaySettings(
        listen=ListenConfig(),
        limits=LimitsConfig(drain_timeout_s=25, lame_duck_s=5),
        served_model_name=None,
        max_model_len=64,
        core=CoreTerms(data_parallel_size=2),
        log_level="debug",
        log_format="json",
    )
    vllm = VllmSettings(Path("/v/python"), "tcp://10.0.0.1:5", ("--dtype", "half"))
    config = vllm.core_config(Path("/m"), settings, ("--tensor-parallel-size=2",))
    assert (config.is_local, config.num_children, config.handshake_address) == (False, 1, "tcp://10.0.0.1:5")
    assert config.command[3:] == (
        "service.cores.vllm_engine",
        "--engine-python=/v/python",
        "--model=/m",
        "--terminate-grace-s=20",
        "--log-level=debug",
        "--log-format=json",
        "--engine-option=--data-parallel-size=2",
        "--engine-option=--shutdown-timeout=40",
        "--engine-option=--max-logprobs=20",
        "--engine-option=--max-model-len=64",
        "--engine-option=--tensor-parallel-size=2",
        "--engine-option=--dtype",
        "--engine-option=half",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "vllm"], "--engine vllm needs --engine-python"),
        (["--", "--tp", "2"], "only --engine vllm takes more arguments, got --tp 2"),
        (["--engine", "vllm", "--engine-python", "/no/such"], "'/no/such' does not exist"),
        (["--engine", "vllm", "--engine-python", "/bin/sh", "--dtype", "half"], "--dtype is a flag of our own engine"),
        (
            ["--engine", "vllm", "--engine-python", "/bin/sh", "--handshake-address", "ipc:///x"],
            "--handshake-address must be tcp://HOST:PORT for vLLM, got 'ipc:///x'",
        ),
    ],
)
def test_refused(arguments: list[str], message: str) -> None:
    """With what is wrong, before anything is fetched or started."""
    result = CliRunner().invoke(serve, ["smollm2-135m", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
