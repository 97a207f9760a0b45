"""What `serve` tells the core, and what it says of a model that is not there."""

import sys
from pathlib import Path

from click.testing import CliRunner

from service.cli.gateway_options import GatewaySettings
from service.cli.serve import core_command, serve
from service.config import CoreTerms, LimitsConfig, ListenConfig
from service.models import ModelFiles


def test_core_command() -> None:
    """The core gets the engine's flags, the form of its log, and more time to end than the gateway takes."""
    settings = GatewaySettings(
        listen=ListenConfig(),
        limits=LimitsConfig(drain_timeout_s=25, lame_duck_s=5),
        served_model_name=None,
        max_model_len=64,
        core=CoreTerms(data_parallel_size=2),
        log_level="debug",
        log_format="json",
    )
    command = core_command(ModelFiles("x", Path("/m/x.gguf"), Path("/t")), settings, {"block_size": 8})
    assert command[:5] == (sys.executable, "-P", "-m", "core", "/m/x.gguf")
    assert command[5:] == (
        "--max-model-len=64",
        "--max-logprobs=20",
        "--data-parallel-size-local=2",
        "--shutdown-timeout=40.0",
        "--tokenizer=/t",
        "--wire-version=0.25",
        "--log-level=debug",
        "--log-format=json",
        "--block-size=8",
    )


def test_model_that_is_not_there() -> None:
    """A wrong path is named, with what else could be given, and the exit code is not 0."""
    result = CliRunner().invoke(serve, ["/no/such/model"])
    assert result.exit_code == 1
    assert "/no/such/model" in result.output
    assert "smollm2-135m" in result.output


def test_adapters_need_a_core_that_takes_them() -> None:
    """Which is said before anything is loaded."""
    result = CliRunner().invoke(serve, ["smollm2-135m", "--lora-modules", "a=/a"])
    assert result.exit_code == 2
    assert "--lora-modules needs --enable-lora" in result.output
