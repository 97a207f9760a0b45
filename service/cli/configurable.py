"""Every flag of every command may also stand in the environment, as SLUICEGATE_…, and as a key in a YAML file.

The command line comes before the environment, and that before the file.
"""

import difflib
import reprlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml

from service.cli.engine_options import CORE_KEYS

_Command = TypeVar("_Command", bound=click.Command)


def configurable(command: _Command) -> _Command:
    """``command`` with a name in the environment for every flag, and ``--config``. Done again it changes nothing."""
    for option in _options(command):
        option.envvar = option.envvar or variable_of(key_of(option))
        option.show_envvar = True
        if option.default == "":
            option.show_default = False
    if not any(option.name == "config" for option in _options(command)):
        command.params.insert(0, config_option())
    return command


def config_option(reads_flags: bool = True) -> click.Option:
    """``--config``; unless it ``reads_flags``, the command gets the path and has to read the file itself."""
    return click.Option(
        ["--config"],
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=_take_defaults_from if reads_flags else None,
        expose_value=not reads_flags,
        is_eager=True,
        envvar=variable_of("config"),
        show_envvar=True,
        help="YAML file with flags as keys; flags and the environment come before it. Also for other commands' flags.",
    )


def key_of(parameter: click.Parameter) -> str:
    """The flag's own long name, without the dashes; of an argument its name."""
    flags = [flag for flag in parameter.opts if flag.startswith("--")]
    return flags[0].removeprefix("--") if flags else str(parameter.name)


def variable_of(key: str) -> str:
    """The name of a flag in the environment."""
    return f"SLUICEGATE_{key.upper().replace('-', '_')}"


def read_settings(
    context: click.Context, path: Path, known: Iterable[str], repeatable: Collection[str] = ()
) -> dict[str, str | list[str]]:
    """What the file says of the ``known`` keys, as it would stand on a command line; other commands' keys are left out.

    Raises click.BadParameter for a file that is no mapping, for keys that no command knows, and for values that cannot
    be: a ``repeatable`` key has one or a list of them, any other has one.
    """
    values, known = _mapping(path), [*known]
    others = [key for key in values if key not in known]
    possible = {*known, *_keys_of_other_commands(context)} if others else set()
    unknown = sorted(str(key) for key in {*others} - possible)
    if unknown:
        raise click.BadParameter(f"{path} has unknown keys: {', '.join(_with_likely(unknown, possible))}")
    return {
        key: _texts(path, key, values[key]) if key in repeatable else _text(path, key, values[key])
        for key in known
        if values.get(key) is not None
    }


def _with_likely(unknown: Iterable[str], possible: Collection[str]) -> Iterator[str]:
    """Each with the key that was probably meant; all that are possible would be some seventy."""
    for key in unknown:
        likely = difflib.get_close_matches(key.replace("_", "-"), possible, n=1)
        yield f"{key} (did you mean {likely[0]}?)" if likely else key


def _take_defaults_from(context: click.Context, _option: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    parameters = {key_of(parameter): parameter for parameter in context.command.params if parameter.name != "config"}
    repeatable = [key for key, parameter in parameters.items() if getattr(parameter, "multiple", False)]
    settings = read_settings(context, path, parameters, repeatable)
    context.default_map = {str(parameters[key].name): value for key, value in settings.items()}


def _texts(path: Path, key: str, value: Any) -> list[str]:
    return [_text(path, key, item) for item in (value if isinstance(value, list) else [value])]


def _text(path: Path, key: str, value: Any) -> str:
    if isinstance(value, list | dict):
        raise click.BadParameter(f"{path}: {key} must be one value, got {reprlib.repr(value)}")
    return str(value)


def _mapping(path: Path) -> dict[Any, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, OSError, ValueError, RecursionError) as error:
        raise click.BadParameter(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise click.BadParameter(f"{path} must hold a mapping of flags to values")
    return values


def _keys_of_other_commands(context: click.Context) -> Iterator[str]:
    yield from CORE_KEYS
    group = context.parent.command if context.parent else None
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None, f"{name} is listed"
            yield from (key_of(parameter) for parameter in command.params if parameter.name != "config")


def _options(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]
