"""Stands for the Python of an environment with vLLM: takes `-m vllm.entrypoints.cli.main serve MODEL --headless …`.

Like vLLM's own it is a parent with a core for each rank, in one process group, and none of them ends with the gateway.
"""

import argparse
import signal
import subprocess
import sys

_SERVE = ["-m", "vllm.entrypoints.cli.main", "serve"]


def main() -> int:
    """The cores of bench.null_core. The last option of those that it does not know is refused if it says so."""
    assert sys.argv[1:4] == _SERVE
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("model")
    parser.add_argument("--headless", action="store_true", required=True)
    parser.add_argument("--data-parallel-address", required=True)
    parser.add_argument("--data-parallel-rpc-port", required=True)
    parser.add_argument("--data-parallel-size", type=int, default=1)
    flags, others = parser.parse_known_args(sys.argv[4:])
    print("fake vllm serves", flags.model, *others, file=sys.stderr, flush=True)
    if "--no-such-option" in others:
        return 2
    dial = [f"--data-parallel-address={flags.data_parallel_address}"]
    dial += [f"--data-parallel-rpc-port={flags.data_parallel_rpc_port}", "--survive-frontend"]
    talk = ["--token-ids", "500-599", "--tokens-per-second", "50"]
    command = [sys.executable, "-m", "bench.null_core", *dial, *talk]
    ranks = range(flags.data_parallel_size)
    cores = [subprocess.Popen([*command, "--data-parallel-rank", str(rank)]) for rank in ranks]
    signal.signal(signal.SIGTERM, lambda *_: [core.terminate() for core in cores])
    return max(core.wait() for core in cores)


if __name__ == "__main__":
    sys.exit(main())
