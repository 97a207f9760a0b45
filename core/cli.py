"""``sluicegate-core`` and ``python -m core``: an engine core for whatever front end dials it.

What is wrong with the command line shows at once: torch is imported only when a front end has answered.
"""

import functools
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from core.config import (
    CacheConfig,
    KVEventsConfig,
    LoraConfig,
    ModelConfig,
    SchedulerConfig,
    SchedulingPolicy,
    SpeculationConfig,
)
from core.executor.remote_ranks import run_ranks
from core.hosts import Hosts
from core.hosts_options import hosts_options
from core.load import load_engine
from core.lora.options import lora_options
from core.process import ProcessConfig, exit_at_once, run_engine_core
from core.process_options import CONTEXT_SETTINGS, option, process_options
from core.wire.standard_files import open_standard_files

_VLLM_SERVE = ["-m", "vllm.entrypoints.cli.main", "serve"]
"""How vllm-rs calls what it takes for a Python interpreter."""
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class ByteSize(click.ParamType[int]):
    """``2GiB``, ``512MiB``, or plain bytes."""

    name = "bytes"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(rf"([0-9]+) *({'|'.join(_UNITS)})", str(value).strip())
        if found is None:
            self.fail(f"{value!r} is not a size such as 2GiB, 512MiB or 1073741824", param, ctx)
        return int(found[1]) * _UNITS[found[2]]


def _check_model(_ctx: click.Context, _param: click.Parameter, model: Path) -> Path:
    """While the options are parsed, so that a wrong path is what one hears of first."""
    if str(model).startswith("-"):
        raise click.UsageError(f"MODEL must come before options that this command does not know, such as {model}")
    if not model.exists():
        raise click.BadParameter(f"{model}: no such file or folder")
    return model


@click.command(context_settings={**CONTEXT_SETTINGS, "ignore_unknown_options": True, "allow_extra_args": True})
@click.argument(
    "model", envvar="SLUICEGATE_MODEL", type=click.Path(path_type=Path), is_eager=True, callback=_check_model
)
@hosts_options
@process_options
@lora_options
@option(
    "--max-model-len", type=click.IntRange(min=1), help="Longest prompt plus output. Default: the model's own limit."
)
@option("--max-num-seqs", type=int, default=SchedulerConfig.max_num_seqs, help="Most requests in one step.")
@option(
    "--max-num-batched-tokens",
    type=int,
    default=SchedulerConfig.max_num_batched_tokens,
    help="Most tokens computed in one step, prefill and decode together.",
)
@option(
    "--async-scheduling/--no-async-scheduling",
    default=SchedulerConfig.async_scheduling,
    help="Whether the next step is scheduled while one runs.",
)
@option(
    "--scheduling-policy",
    type=click.Choice(["fcfs", "priority"]),
    default=SchedulerConfig.scheduling_policy,
    help="Who runs first: who came first, or whose priority is lowest. fcfs: priorities are ignored.",
)
@option(
    "--num-speculative-tokens",
    type=int,
    default=SpeculationConfig.num_speculative_tokens,
    help="Most tokens that a step drafts for a request, guessed from what the request has repeated; 0 = none.",
)
@option(
    "--prompt-lookup-max",
    type=int,
    default=SpeculationConfig.prompt_lookup_max,
    help="Most last tokens of a request to look for in it, for a draft.",
)
@option(
    "--prompt-lookup-min",
    type=int,
    default=SpeculationConfig.prompt_lookup_min,
    help="Fewest last tokens of a request that must occur in it, for a draft.",
)
@option(
    "--max-itl-stretch",
    type=float,
    default=SchedulerConfig.max_itl_stretch,
    help="How much longer those who decode may wait for a token while a later prompt is computed, 2 = twice as long; "
    "0 = no bound.",
)
@option("--block-size", type=int, default=CacheConfig.block_size, help="Tokens in one block of the KV cache.")
@option(
    "--kv-cache-memory",
    type=ByteSize(),
    help="Size of the KV cache, such as 2GiB. Default: what the machine can spare.",
)
@option(
    "--enable-prefix-caching/--no-enable-prefix-caching",
    default=CacheConfig.enable_prefix_caching,
    help="Whether prompts that begin alike share their blocks.",
)
@option(
    "--prefix-hash-seed",
    metavar="TEXT",
    envvar=["SLUICEGATE_PREFIX_HASH_SEED", "PYTHONHASHSEED"],
    help="Cores of one seed publish the same hashes for the same blocks. Default: random.",
)
@option(
    "--dtype",
    default=ModelConfig.dtype,
    metavar="NAME",
    help="Type of the numbers computed with: auto, float32, bfloat16 or float16.",
)
@option(
    "--quantization",
    default=ModelConfig.quantization,
    metavar="NAME",
    help="none: computation in --dtype on dequantized weights. auto: on a CPU the weights of a GGUF stay quantized, "
    "and meet activations of 8 bits.",
)
@option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where tokenizer.json is, for structured output. Default: where the model is.",
)
@option(
    "--preload-vocabulary/--no-preload-vocabulary",
    default=ModelConfig.preload_vocabulary,
    help="Read the vocabulary for structured output at start, not at its first request, which others would feel.",
)
@option("--device", default=ModelConfig.device, metavar="NAME", help="Where the model runs: cpu, cuda or cuda:N.")
@option(
    "--attention-backend",
    default=ModelConfig.attention_backend,
    metavar="NAME",
    help="native, torch, or on a GPU flash: FlashAttention, for bfloat16 or float16 and blocks that it can read. "
    "auto: native on a CPU where it can, else torch.",
)
@option(
    "--kernels",
    default=ModelConfig.kernels,
    metavar="NAME",
    help="What computes float32 on a CPU: avx512, avx2 or torch. auto: the first of them that the CPU can run.",
)
@option(
    "--data-parallel-size-local",
    type=click.IntRange(min=1),
    default=ModelConfig.num_cores_here,
    help="Cores on this host: each takes its part of the CPUs, and by default of the memory.",
)
@option("--seed", type=int, default=ModelConfig.seed, help="Mixed into the draws of requests that bring no seed.")
@option(
    "--max-logprobs",
    type=click.IntRange(min=-1),
    default=ModelConfig.max_logprobs,
    help="Most log-probabilities per token that a request may ask for; -1: those of the whole vocabulary.",
)
@option(
    "--profile-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where a front end may have profiles of the model written. Default: it may not.",
)
@option(
    "--kv-events-endpoint",
    metavar="ENDPOINT",
    help="Publish what enters and leaves the prefix cache, at tcp://*:5557 or ipc://PATH, or to tcp://HOST:PORT.",
)
@option("--kv-events-topic", default=KVEventsConfig.topic, show_default=False, help="First frame of what is published.")
@option("--kv-events-replay-endpoint", metavar="ENDPOINT", help="Where subscribers may ask for what they missed.")
def command(
    model: Path,
    hosts: Hosts,
    process: ProcessConfig,
    lora: LoraConfig | None,
    max_model_len: int | None,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    async_scheduling: bool,
    scheduling_policy: SchedulingPolicy,
    num_speculative_tokens: int,
    prompt_lookup_max: int,
    prompt_lookup_min: int,
    max_itl_stretch: float,
    block_size: int,
    kv_cache_memory: int | None,
    enable_prefix_caching: bool,
    prefix_hash_seed: str | None,
    dtype: str,
    quantization: str,
    device: str,
    attention_backend: str,
    kernels: str,
    data_parallel_size_local: int,
    tokenizer: Path | None,
    preload_vocabulary: bool,
    seed: int,
    max_logprobs: int,
    profile_dir: Path | None,
    kv_events_endpoint: str | None,
    kv_events_topic: str,
    kv_events_replay_endpoint: str | None,
) -> None:
    """Run an engine core with MODEL, a .gguf file or a folder, for the front end at the given address.

    Also takes the command line of `vllm serve --headless`; options it does not know are ignored, with a warning.
    """
    _warn_of_ignored(click.get_current_context().args)
    if hosts.only_runs_ranks:
        exit_at_once(run_ranks(model, hosts, process.shutdown_timeout_s))
    try:
        cache = CacheConfig(block_size, kv_cache_memory, enable_prefix_caching, prefix_hash_seed)
        speculation = SpeculationConfig(num_speculative_tokens, prompt_lookup_max, prompt_lookup_min)
        scheduler = SchedulerConfig(
            *(max_num_seqs, max_num_batched_tokens, async_scheduling, scheduling_policy, speculation, max_itl_stretch)
        )
        rank = process.handshake.rank
        kv_events = make_kv_events(kv_events_endpoint, kv_events_topic, kv_events_replay_endpoint, rank)
        if kv_events is not None and not enable_prefix_caching:
            raise ValueError("--kv-events-endpoint: there are no events with --no-enable-prefix-caching")
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    model_config = ModelConfig(
        *(model, dtype, quantization, device, max_model_len, seed, data_parallel_size_local, max_logprobs),
        *(tokenizer, preload_vocabulary, attention_backend, kernels),
    )
    load = functools.partial(
        load_engine,
        model_config,
        cache,
        scheduler,
        hosts=hosts,
        profile_dir=profile_dir,
        kv_events=kv_events,
        lora=lora,
    )
    exit_at_once(run_engine_core(process, load))


def make_kv_events(endpoint: str | None, topic: str, replay_endpoint: str | None, rank: int) -> KVEventsConfig | None:
    """None without an endpoint. Raises ValueError for one that is none."""
    if endpoint is not None:
        return KVEventsConfig(endpoint, topic, replay_endpoint, rank)
    if replay_endpoint is not None:
        raise ValueError("--kv-events-replay-endpoint needs --kv-events-endpoint")
    return None


def _warn_of_ignored(arguments: Sequence[str]) -> None:
    if arguments:
        click.echo(f"Warning: ignored, being unknown here: {' '.join(arguments)}", err=True)


def main(arguments: Sequence[str] | None = None, prog_name: str = "sluicegate-core") -> None:
    """Run the command with ``arguments``, by default those of the process, and exit. Its usage says ``prog_name``."""
    open_standard_files()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[: len(_VLLM_SERVE)] == _VLLM_SERVE:
        arguments = arguments[len(_VLLM_SERVE) :]
    command(arguments, prog_name=prog_name)
