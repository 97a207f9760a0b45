"""The options of the engine that `serve` takes and hands on, and the names of all that a core takes.

They are the core's own, in its words. Nothing of the core but its wire may be imported here: a test compares the two.
"""

from collections.abc import Callable, Iterator
from typing import Any

import click

_AT_LEAST_ONE = click.IntRange(min=1)

_ENGINE_OPTIONS = [
    click.option("--max-num-seqs", type=_AT_LEAST_ONE, default=64, help="Most requests in one step."),
    click.option(
        "--max-num-batched-tokens",
        type=_AT_LEAST_ONE,
        default=512,
        help="Most tokens computed in one step, prefill and decode together.",
    ),
    click.option(
        "--async-scheduling/--no-async-scheduling",
        default=False,
        help="Whether the next step is scheduled while one runs.",
    ),
    click.option(
        "--scheduling-policy",
        type=click.Choice(["fcfs", "priority"]),
        default="fcfs",
        help="Who runs first: who came first, or whose priority is lowest. fcfs: priorities are ignored.",
    ),
    click.option(
        "--num-speculative-tokens",
        type=click.IntRange(min=0),
        default=0,
        help="Most tokens that a step drafts for a request, guessed from what the request has repeated; 0 = none.",
    ),
    click.option(
        "--prompt-lookup-max",
        type=_AT_LEAST_ONE,
        default=5,
        help="Most last tokens of a request to look for in it, for a draft.",
    ),
    click.option(
        "--prompt-lookup-min",
        type=_AT_LEAST_ONE,
        default=2,
        help="Fewest last tokens of a request that must occur in it, for a draft.",
    ),
    click.option(
        "--max-itl-stretch",
        type=click.FloatRange(min=0),
        default=2.5,
        help="How much longer those who decode may wait for a token while a later prompt is computed, 2 = twice as "
        "long; 0 = no bound.",
    ),
    click.option("--block-size", type=_AT_LEAST_ONE, default=16, help="Tokens in one block of the KV cache."),
    click.option(
        "--kv-cache-memory",
        metavar="BYTES",
        help="Size of the KV cache, such as 2GiB. Default: what the machine can spare.",
    ),
    click.option(
        "--enable-prefix-caching/--no-enable-prefix-caching",
        default=True,
        help="Whether prompts that begin alike share their blocks.",
    ),
    click.option(
        "--prefix-hash-seed",
        metavar="TEXT",
        help="Cores of one seed publish the same hashes for the same blocks. Default: random.",
    ),
    click.option(
        "--dtype",
        default="auto",
        metavar="NAME",
        help="Type of the numbers computed with: auto, float32, bfloat16 or float16.",
    ),
    click.option(
        "--quantization",
        default="auto",
        metavar="NAME",
        help="none: computation in --dtype on dequantized weights. auto: on a CPU the weights of a GGUF stay "
        "quantized, and meet activations of 8 bits.",
    ),
    click.option(
        "--preload-vocabulary/--no-preload-vocabulary",
        default=False,
        help="Read the vocabulary for structured output at start, not at its first request, which others would feel.",
    ),
    click.option("--device", default="cpu", metavar="NAME", help="Where the model runs: cpu, cuda or cuda:N."),
    click.option(
        "--attention-backend",
        default="auto",
        metavar="NAME",
        help="native, torch, or on a GPU flash: FlashAttention, for bfloat16 or float16 and blocks that it can read. "
        "auto: native on a CPU where it can, else torch.",
    ),
    click.option(
        "--kernels",
        default="auto",
        metavar="NAME",
        help="What computes float32 on a CPU: avx512, avx2 or torch. auto: the first of them that the CPU can run.",
    ),
    click.option(
        "--tensor-parallel-size",
        type=_AT_LEAST_ONE,
        default=1,
        help="Processes that share the model, each with a part of every layer; on cuda each has a GPU.",
    ),
    click.option(
        "--nnodes", type=_AT_LEAST_ONE, help="Hosts that share the model. Default: what started them says, or 1."
    ),
    click.option("--master-addr", metavar="HOST", help="Of host 0, which listens there. Default: as with --nnodes."),
    click.option(
        "--master-port",
        type=click.IntRange(1, 65535),
        help="Its port, plus the data-parallel rank. Default: as with --nnodes, or 29501.",
    ),
    click.option(
        "--enable-lora/--no-enable-lora",
        default=False,
        help="Whether requests may name LoRA adapters.",
    ),
    click.option("--max-loras", type=_AT_LEAST_ONE, default=4, help="Most adapters in one step."),
    click.option("--max-lora-rank", type=_AT_LEAST_ONE, default=16, help="Highest rank of an adapter."),
    click.option(
        "--max-cpu-loras",
        type=_AT_LEAST_ONE,
        help="Most adapters in memory. Default: 16, or --max-loras if more.",
    ),
    click.option(
        "--lora-root",
        type=click.Path(file_okay=False),
        help="Folder that adapters must be in, whoever asks for them. Default: any that the core can read.",
    ),
    click.option("--seed", type=int, default=0, help="Mixed into the draws of requests that bring no seed."),
    click.option(
        "--profile-dir",
        type=click.Path(file_okay=False),
        help="Where a front end may have profiles of the model written. Default: it may not.",
    ),
    click.option(
        "--kv-events-endpoint",
        metavar="ENDPOINT",
        help="Publish what enters and leaves the prefix cache, at tcp://*:5557 or ipc://PATH, or to tcp://HOST:PORT.",
    ),
    click.option("--kv-events-topic", default="", help="First frame of what is published."),
    click.option(
        "--kv-events-replay-endpoint", metavar="ENDPOINT", help="Where subscribers may ask for what they missed."
    ),
]
FLAGS_OF_VLLM_TOO = ("tensor_parallel_size", "nnodes", "master_addr", "master_port")
"""By parameter name; whose engine it is, they mean the same."""
CORE_KEYS = (
    "model",
    "handshake-address",
    "data-parallel-address",
    "data-parallel-rpc-port",
    "data-parallel-rank",
    "data-parallel-size-local",
    "headless",
    "curve-key",
    "curve-gateway-key",
    "shutdown-timeout",
    "lifeline-fd",
    "tensor-ipc-fd",
    "wire-version",
    "survive-frontend",
    "log-level",
    "log-format",
    "max-model-len",
    "max-num-seqs",
    "max-num-batched-tokens",
    "async-scheduling",
    "scheduling-policy",
    "num-speculative-tokens",
    "prompt-lookup-max",
    "prompt-lookup-min",
    "max-itl-stretch",
    "block-size",
    "kv-cache-memory",
    "enable-prefix-caching",
    "prefix-hash-seed",
    "dtype",
    "quantization",
    "tokenizer",
    "preload-vocabulary",
    "device",
    "attention-backend",
    "kernels",
    "tensor-parallel-size",
    "nnodes",
    "node-rank",
    "master-addr",
    "master-port",
    "enable-lora",
    "max-loras",
    "max-lora-rank",
    "max-cpu-loras",
    "lora-root",
    "seed",
    "max-logprobs",
    "profile-dir",
    "kv-events-endpoint",
    "kv-events-topic",
    "kv-events-replay-endpoint",
)
"""What a configuration file may say to `sluicegate core`."""


def engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the engine to a command; it gets them under their own names."""
    for add_option in reversed(_ENGINE_OPTIONS):
        command = add_option(command)
    return command


def spelled(flags: dict[str, Any]) -> Iterator[str]:
    """``flags``, by parameter name, as a core takes them; those that are None are left to it."""
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        elif value is not None:
            yield f"--{flag}={value}"
