"""Flags, environment and configuration file of `serve` and `gateway`."""

import logging
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from service.cli.configurable import configurable
from service.cli.gateway_options import CONTEXT_SETTINGS, GatewaySettings, gateway_options
from service.config import ConnectionsConfig, TlsConfig


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """The options set up logging for the whole process: take that back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def run(*arguments: str, env: dict[str, str] | None = None) -> tuple[Result, GatewaySettings | None, str | None]:
    """Run a command that has the options, and one flag of its own; what it was given."""
    received: list[tuple[GatewaySettings, str | None]] = []

    @configurable
    @click.command(context_settings=CONTEXT_SETTINGS)
    @click.argument("model", default="default", envvar="SLUICEGATE_MODEL")
    @gateway_options
    @click.option("--dtype")
    def command(model: str, settings: GatewaySettings, dtype: str | None) -> None:
        received.append((settings, dtype))
        click.echo(model)

    result = CliRunner().invoke(command, [*arguments], env=env or {})
    return (result, *received[0]) if received else (result, None, None)


def test_defaults() -> None:
    """Without flags the addresses and bounds are those of the design."""
    _, settings, dtype = run()
    assert settings is not None
    assert settings.listen.grpc_addresses == ("127.0.0.1:50051",)
    assert settings.listen.admin_address == "127.0.0.1:50052"
    assert settings.listen.metrics_address == "127.0.0.1:9464"
    assert (settings.limits.drain_timeout_s, settings.core.load_timeout_s) == (30, 600)
    assert settings.limits.min_flush_interval_s == 0
    assert (settings.served_model_name, settings.max_model_len, dtype) == (None, None, None)


def test_workers() -> None:
    """Each of several processes is started with what the log of this one is told."""
    _, settings, _ = run("--gateway-workers", "3", "--log-format", "json", "--access-log")
    assert settings is not None
    assert settings.workers.num_workers == 3
    assert settings.workers.command[-3:] == ("--log-level=info", "--log-format=json", "--access-log")
    result, _, _ = run("--gateway-workers", "65")
    assert "65 is not in the range 1<=x<=64" in result.output


def test_security(config: Path) -> None:
    """Files, and addresses of another policy, as flags or in the file; a certificate without its key is refused."""
    config.write_text("tls-cert: c\ntls-key: k\napi-key-file: keys\nplaintext-address: [unix:/a, 127.0.0.1:1]\n")
    _, settings, _ = run("--config", str(config), "--tls-client-ca", "ca", "--socket-mode", "660", "--allow-open-admin")
    assert settings is not None
    assert settings.security.tls == TlsConfig(Path("c"), Path("k"), Path("ca"))
    assert (settings.security.api_key_file, settings.security.admin_key_file) == (Path("keys"), None)
    assert settings.security.allow_open_admin
    assert settings.listen.plaintext_addresses == ("unix:/a", "127.0.0.1:1")
    assert settings.listen.socket_mode == 0o660
    for wrong, message in {
        ("--tls-cert", "c"): "TLS needs both --tls-cert and --tls-key",
        ("--tls-client-ca", "c"): "TLS needs both",
        ("--socket-mode", "rw"): "'rw' is no octal number",
        ("--socket-mode", "666"): "--socket-mode must be within 770, got 666",
    }.items():
        result, settings, _ = run(*wrong)
        assert (result.exit_code, settings) == (2, None)
        assert message in result.output


def test_tracing() -> None:
    """Spans are asked for by a flag, or by OpenTelemetry's own variable; without either there are none."""
    url = "http://collector:4317"
    for result, settings, _ in (
        run("--otlp-traces-endpoint", url),
        run(env={"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url}),
        run(env={"SLUICEGATE_OTLP_TRACES_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://other:1"}),
    ):
        assert settings is not None, result.output
        assert settings.tracing.endpoint == url
    _, settings, _ = run()
    assert settings is not None
    assert settings.tracing.endpoint == ""
    result, _, _ = run("--otlp-traces-endpoint", "collector:4317")
    assert "--otlp-traces-endpoint must be http(s)://HOST:PORT, got 'collector:4317'" in result.output


def test_connections() -> None:
    """The bounds of a connection, each by its flag."""
    flags = "message-bytes", "metadata-bytes", "concurrent-streams", "connection-age", "connection-age-grace"
    seconds = "--client-handshake-timeout=6", "--keepalive-interval=7", "--keepalive-timeout=8"
    _, settings, _ = run(*(f"--max-{flag}={value}" for value, flag in enumerate(flags, start=1)), *seconds)
    assert settings is not None
    assert settings.connections == ConnectionsConfig(1, 2, 3, 6, 4, 5, 7, 8)


def test_adapters(config: Path) -> None:
    """Names with their folders, as often as there are adapters; a relative path is one from here."""
    _, settings, _ = run("--lora-modules", "a=/a", "--lora-modules", "b=x=y")
    assert settings is not None
    assert settings.lora_modules == (("a", "/a"), ("b", str(Path("x=y").absolute())))
    config.write_text("lora-modules: [a=/a, b=/b]")
    _, settings, _ = run("--config", str(config))
    assert settings is not None
    assert settings.lora_modules == (("a", "/a"), ("b", "/b"))
    result, _, _ = run("--lora-modules", "/a")
    assert "'/a' is not NAME=PATH" in result.output


def test_lockstep() -> None:
    """Cores in lockstep have a coordinator, which logs as the gateway does; others have none."""
    flags = ("--data-parallel-size", "2", "--log-level", "WARNING")
    _, settings, _ = run(*flags, "--data-parallel-lockstep")
    assert settings is not None
    assert settings.core.coordinator_command[-3:] == ("core.data_parallel", "--log-level=warning", "--log-format=text")
    _, settings, _ = run(*flags)
    assert settings is not None
    assert settings.core.coordinator_command == ()


def test_flag_before_environment_before_file(config: Path) -> None:
    """A flag outdoes the environment, which outdoes the file, which outdoes the default."""
    config.write_text("drain-timeout: 1\nmax-queued-requests: 1\nserved-model-name: file\ndtype: float32\n")
    env = {"SLUICEGATE_DRAIN_TIMEOUT": "2", "SLUICEGATE_MAX_QUEUED_REQUESTS": "2", "SLUICEGATE_CONFIG": str(config)}
    _, settings, dtype = run("--drain-timeout", "3", env=env)
    assert settings is not None
    assert (settings.limits.drain_timeout_s, settings.limits.max_queued_requests) == (3, 2)
    assert (settings.served_model_name, dtype) == ("file", "float32")


def test_several_addresses(config: Path) -> None:
    """Addresses are a repeated flag, words in the environment, one value or a list in the file."""
    expected = ("a:1", "unix:/b")
    assert run("--grpc-address", "a:1", "--grpc-address", "unix:/b")[1].listen.grpc_addresses == expected
    assert run(env={"SLUICEGATE_GRPC_ADDRESS": "a:1 unix:/b"})[1].listen.grpc_addresses == expected
    config.write_text("grpc-address: [a:1, unix:/b]")
    assert run("--config", str(config))[1].listen.grpc_addresses == expected
    config.write_text("grpc-address: a:1")
    assert run("--config", str(config))[1].listen.grpc_addresses == ("a:1",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("drain-timeout: long\n", "'long' is not a valid float"),
        ("grpc-address: nowhere\n", "--grpc-address must be HOST:PORT"),
    ],
)
def test_broken_file(config: Path, content: str, message: str) -> None:
    """What is wrong in a file is refused in words that name it."""
    config.write_text(content)
    result, settings, _ = run("--config", str(config))
    assert settings is None
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--drain-timeout", "-1"], "--drain-timeout"),
        (["--core-load-timeout", "nan"], "--core-load-timeout must be in (0, 1e+06] s, got nan"),
        (["--core-ping-timeout", "0.01"], "--core-ping-timeout must be in [0.1, 1e+06] s, got 0.01"),
        (["--data-parallel-size", "0"], "--data-parallel-size"),
        (["--data-parallel-lockstep"], "--data-parallel-lockstep needs a --data-parallel-size of at least 2, got 1"),
        (["--grpc-address", "localhost"], "--grpc-address must be HOST:PORT"),
        (["--metrics-address", "x"], "--metrics-address must be HOST:PORT"),
        (["--no-such-flag", "x"], "No such option"),
    ],
)
def test_broken_flag(arguments: list[str], message: str) -> None:
    """What is wrong with a flag is refused with exit code 2 and names it."""
    result, settings, _ = run(*arguments)
    assert settings is None
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize("address", ["off", ""])
def test_no_metrics(address: str) -> None:
    """``--metrics-address off`` turns them off."""
    _, settings, _ = run("--metrics-address", address)
    assert settings is not None
    assert settings.listen.metrics_address == ""
