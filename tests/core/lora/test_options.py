"""The flags of adapters."""

from pathlib import Path

import click
from click.testing import CliRunner, Result

from core.config import LoraConfig
from core.lora.options import lora_options


def run(*flags: str) -> tuple[Result, list[LoraConfig | None]]:
    received: list[LoraConfig | None] = []

    @click.command()
    @lora_options
    def command(lora: LoraConfig | None) -> None:
        received.append(lora)

    return CliRunner().invoke(command, flags), received


def test_none_unless_asked_for() -> None:
    """Whatever the other flags say."""
    assert run("--max-loras", "7")[1] == [None]


def test_limits() -> None:
    """By default those of the configuration."""
    assert run("--enable-lora")[1] == [LoraConfig()]
    flags = ("--enable-lora", "--max-loras", "2", "--max-lora-rank", "64", "--max-cpu-loras", "3", "--lora-root", "/a")
    assert run(*flags)[1] == [LoraConfig(2, 64, 3, Path("/a"))]


def test_what_does_not_go_together_is_wrong_usage() -> None:
    result, received = run("--enable-lora", "--max-loras", "5", "--max-cpu-loras", "4")
    assert (result.exit_code, received) == (2, [])
    assert "max_cpu_loras must be at least max_loras (5), got 4" in result.output
