"""The core's options as `serve` and the configuration file know them."""

import click

import core.cli
from service.cli.configurable import key_of
from service.cli.engine_options import CORE_KEYS, spelled
from service.cli.serve import serve


def options_of(command: click.Command) -> dict[str, click.Option]:
    return {key_of(option): option for option in command.params if isinstance(option, click.Option)}


def test_serve_says_of_the_engine_what_the_core_says() -> None:
    """Every option of the engine with the core's own flags, help and default."""
    in_serve, in_core = options_of(serve), options_of(core.cli.command)
    shared = in_core.keys() & in_serve.keys() - {"handshake-address"}
    assert shared >= {"max-model-len", "max-num-seqs", "kv-cache-memory", "dtype", "seed", "log-level", "log-format"}
    for key in shared:
        ours, theirs = in_serve[key], in_core[key]
        assert (ours.opts, ours.secondary_opts) == (theirs.opts, theirs.secondary_opts)
        assert (ours.help, ours.default) == (theirs.help, theirs.default), key


def test_serve_has_every_option_of_the_engine() -> None:
    """All that a core takes but how it finds its gateway and how it ends, which is the gateway's to say.

    --handshake-address is one of `serve` too, where it is that of vLLM's cores.
    """
    of_the_gateway = {
        "headless",
        "curve-key",
        "curve-gateway-key",
        "shutdown-timeout",
        "lifeline-fd",
        "wire-version",
        "survive-frontend",
        "tensor-ipc-fd",
        "node-rank",
        "tokenizer",
    }
    of_the_gateway |= {key for key in options_of(core.cli.command) if key.startswith("data-parallel")}
    assert options_of(core.cli.command).keys() - options_of(serve).keys() == of_the_gateway


def test_a_file_may_say_to_the_core_what_the_core_takes() -> None:
    """No key is missing and none is unknown to it."""
    assert {*CORE_KEYS} == {key_of(parameter) for parameter in core.cli.command.params}


def test_flags_are_spelled_as_the_core_takes_them() -> None:
    """Those that were not given are left to it."""
    flags = {"max_num_seqs": 4, "dtype": None, "enable_prefix_caching": False, "kv_cache_memory": "2GiB", "seed": 0}
    spelling = ["--max-num-seqs=4", "--no-enable-prefix-caching", "--kv-cache-memory=2GiB", "--seed=0"]
    assert [*spelled(flags)] == spelling
    assert [*spelled({"enable_prefix_caching": True})] == ["--enable-prefix-caching"]
