"""Every flag of every command in the environment and in a file."""

import ast
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from service.cli import main
from service.cli.configurable import configurable, key_of, variable_of


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


@configurable
@click.command()
@click.argument("model", default="default", envvar="SLUICEGATE_MODEL")
@click.option("--seed", type=int)
@click.option("--stop", multiple=True)
@click.option("--json", "json_path")
@click.option("--cache/--no-cache", default=True)
def command(**values: object) -> None:
    click.echo(values)


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(command, [*arguments], env=env or {})


def value_of(name: str, result: Result) -> object:
    assert result.exit_code == 0, result.output
    values: dict[str, object] = ast.literal_eval(result.output)
    return values[name]


def test_flag_before_environment_before_file_before_default(config: Path) -> None:
    """Each where the ones before it say nothing."""
    assert value_of("seed", run()) is None
    config.write_text("seed: 1")
    env = {"SLUICEGATE_CONFIG": str(config)}
    assert value_of("seed", run(env=env)) == 1
    assert value_of("seed", run("--config", str(config))) == 1
    assert value_of("seed", run(env=env | {"SLUICEGATE_SEED": "2"})) == 2
    assert value_of("seed", run("--seed", "3", env=env | {"SLUICEGATE_SEED": "2"})) == 3


def test_names_are_those_of_the_flags(config: Path) -> None:
    """Whatever the parameter behind a flag is called; an argument goes by its own name."""
    config.write_text("json: from-file\nmodel: from-file\n")
    assert value_of("json_path", run(env={"SLUICEGATE_JSON": "from-env"})) == "from-env"
    assert value_of("json_path", run("--config", str(config))) == "from-file"
    assert value_of("model", run("--config", str(config))) == "from-file"
    assert value_of("model", run("--config", str(config), env={"SLUICEGATE_MODEL": "from-env"})) == "from-env"


def test_flags_that_are_repeated_and_switches(config: Path) -> None:
    """One value or a list in the file, words in the environment; true and false."""
    config.write_text("stop: a\ncache: false\n")
    assert value_of("stop", run("--config", str(config))) == ("a",)
    assert value_of("cache", run("--config", str(config))) is False
    assert value_of("cache", run(env={"SLUICEGATE_CACHE": "false"})) is False
    config.write_text("stop: [a, b]")
    assert value_of("stop", run("--config", str(config))) == ("a", "b")
    assert value_of("stop", run(env={"SLUICEGATE_STOP": "a b"})) == ("a", "b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"sed: 1\nzzz: x\n", "unknown keys: sed (did you mean seed?), zzz"),
        (b"config: x\n", "unknown keys: config"),
        (b"2020-01-01: x\n", "unknown keys: 2020-01-01"),
        (b"- a\n", "must hold a mapping"),
        (b"a: [\n", "is not YAML: while parsing"),
        (b"[" * 5000, "is not YAML"),
        (b"a: \xff\n", "is not YAML"),
        (b"? [a]\n: 1\n", "is not YAML"),
        (b"seed: !!python/object:os.system x\n", "is not YAML"),
        (b"seed: long\n", "'long' is not a valid integer"),
        (b"seed: {a: 1}\n", "seed must be one value, got {'a': 1}"),
        (b"seed: [1]\n", "seed must be one value, got [1]"),
        (b"stop: [x, [y]]\n", "stop must be one value, got ['y']"),
        (b"seed: 1.5\n", "'1.5' is not a valid integer"),
        (b"cache: perhaps\n", "'perhaps' is not a valid boolean"),
    ],
)
def test_broken_file(config: Path, content: bytes, message: str) -> None:
    """What is wrong in a file is refused with exit code 2, in one line that names it."""
    config.write_bytes(content)
    result = run("--config", str(config))
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.splitlines()) == 4, "usage, hint, nothing, error"


def test_file_that_is_not_there() -> None:
    """It is named."""
    result = run("--config", "/no/such/file")
    assert result.exit_code == 2
    assert "/no/such/file" in result.output


def test_one_file_serves_all_commands(config: Path) -> None:
    """A command leaves out what another one knows, and still refuses what none does."""
    config.write_text("drain-timeout: 5\nblock-size: 8\nhandshake-address: x\nworkload: W9\n")
    result = CliRunner().invoke(main, ["bench", "--config", str(config)])
    assert result.exit_code == 2
    assert "'W9' is not one of" in result.output
    config.write_text("drain-timeout: 5\ndrain-timeot: 5\n")
    result = CliRunner().invoke(main, ["chat", "--config", str(config)])
    assert result.exit_code == 2
    assert "unknown keys: drain-timeot (did you mean drain-timeout?)" in result.output


@pytest.mark.parametrize("name", ["serve", "gateway", "generate", "chat", "bench"])
def test_every_flag_of_every_command_has_a_variable(name: str) -> None:
    """Its help says which."""
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None
    for option in command.params:
        if isinstance(option, click.Option):
            names = [option.envvar] if isinstance(option.envvar, str) else [*(option.envvar or ())]
            assert names[0] == variable_of(key_of(option))
            assert option.show_envvar
    assert [option.name for option in command.params].count("config") == 1


def test_what_is_empty_by_default_is_not_shown() -> None:
    """The help has no `default: ""`, and no line without a word."""
    for name in ("serve", "gateway"):
        shown = CliRunner().invoke(main, [name, "--help"]).output
        assert 'default: ""' not in shown
        assert "\n  [MODEL]\n" not in shown
