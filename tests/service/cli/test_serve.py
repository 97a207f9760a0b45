"""What `serve` tells the core, and what it says of a model that is not there."""

import sys
from pathlib import Path

from click.testing import CliRunner

from service.cli.serve import core_command, serve


def test_core_command() -> None:
    """Flags that were given reach the core as it spells them; the others are left to it."""
    flags = {"max_num_seqs": 4, "dtype": None, "enable_prefix_caching": False, "kv_cache_memory": "2GiB", "seed": 0}
    command = core_command(Path("/m/x.gguf"), flags)
    assert command[:5] == (sys.executable, "-P", "-m", "core", "/m/x.gguf")
    assert command[5:] == ("--max-num-seqs=4", "--no-enable-prefix-caching", "--kv-cache-memory=2GiB", "--seed=0")
    assert core_command(Path("m"), {"enable_prefix_caching": True})[5:] == ("--enable-prefix-caching",)


def test_model_that_is_not_there() -> None:
    """A wrong path is named, with what else could be given, and the exit code is not 0."""
    result = CliRunner().invoke(serve, ["/no/such/model"])
    assert result.exit_code == 1
    assert "/no/such/model" in result.output
    assert "smollm2-135m" in result.output
