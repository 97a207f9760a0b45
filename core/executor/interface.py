"""What the busy loop asks of an executor, and the messages between the two.

The messages are msgspec structs, so that an executor may run its ranks in other processes. No torch here.

A request lives in the model runner from the step that names it in ``new_requests`` to the step that names it in
``finished_request_ids``. In between, the runner keeps its tokens: the scheduler sends only what it alone knows
(new blocks, how many tokens to compute), and the runner appends what it samples.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec

from core.executor.memory_left import MemoryLeft
from core.prompt_embeds import PromptEmbeds
from core.wire.messages import LogprobsLists, LogprobsTensors
from core.wire.sampling_params import SamplingParams

MEMORY_PARTS = ("weights", "kv_cache")
"""What an executor holds, and drops to sleep; named as front ends name them."""


class ModelInfo(msgspec.Struct, frozen=True):
    """What the rest of the core must know of a loaded model. ``max_model_len`` is the model's own limit, in tokens."""

    max_model_len: int
    vocab_size: int
    dtype: str
    """Of the computation: ``float32``, ``bfloat16``."""
    kv_bytes_per_token: int
    """Keys and values of one token in one group of layers: of all layers, if there is one group."""
    hidden_size: int
    """Elements of a token's embedding."""
    needs_lockstep: bool = False
    """Whether data-parallel ranks take part in each other's steps, as those of a mixture of experts do."""
    kv_windows: tuple[int | None, ...] = (None,)
    """For each group of layers that share block tables: how many last tokens a token sees there; None = all."""


class NewRequest(msgspec.Struct):
    """A request that starts or, after preemption, starts over: everything the runner must know of it."""

    request_id: str
    token_ids: list[int]
    """The prompt and, after preemption, the tokens generated so far."""
    num_prompt_tokens: int
    sampling_params: SamplingParams
    seed: int
    """Keys the random draws together with the position; the request's own seed, or one derived from its id."""
    block_ids: list[list[int]]
    """By group of layers. 0, the null block, where no token to compute sees what was there."""
    num_computed_tokens: int
    """Tokens whose keys and values the blocks hold already (prefix-cache hits)."""
    embeds: PromptEmbeds | None = None
    """Inputs at positions of the prompt where ``token_ids`` has placeholders."""
    lora: int | None = None
    """Of the adapter that it runs with: the key that ``load_lora`` was given."""


class CachedRequest(msgspec.Struct):
    """A request the runner knows: the blocks it gained and how far it has come.

    Blocks that lie behind a window may be another request's by now: what nobody sees must not be read.
    """

    request_id: str
    new_block_ids: list[list[int]]
    """By group of layers; empty if no group gained any."""
    num_computed_tokens: int


class GrammarBitmask(msgspec.Struct):
    """What grammars leave to some requests of a step, each of which the step gives a token."""

    request_ids: list[str]
    bits: bytes
    """int32 [len(request_ids), ceil(vocab_size / 32)], little endian: bit j of word i is token 32 i + j, 1 keeps it."""


class SchedulerOutput(msgspec.Struct):
    """One step's work. ``num_scheduled_tokens`` maps request ids to token counts, drafts included, in batch order."""

    new_requests: list[NewRequest]
    cached_requests: list[CachedRequest]
    num_scheduled_tokens: dict[str, int]
    finished_request_ids: list[str]
    """Requests the runner must forget before this step: finished, aborted or preempted."""
    draft_token_ids: dict[str, list[int]] = {}
    """What may come after the known tokens of a request, all of which this step computes with it.

    The runner gives what comes after each: the drafts that are right, and the first token that is not a draft.
    """
    grammar_bitmask: GrammarBitmask | None = None


class ModelRunnerOutput(msgspec.Struct):
    """One step's result. A request is absent from ``sampled_token_ids`` while its prefill is incomplete.

    It has one token there, and one more for each draft that was right; in ``logprobs`` as many rows.
    """

    sampled_token_ids: dict[str, list[int]] = {}
    logprobs: dict[str, LogprobsLists] = {}
    prompt_logprobs: dict[str, LogprobsTensors] = {}
    num_nans_in_logits: dict[str, int] = {}
    """Only requests whose logits held NaN; their sampled tokens mean nothing."""
    no_possible_token: set[str] = set()
    """Requests whose own parameters ruled out every token; their sampled tokens mean nothing."""


class Executor(Protocol):
    """Runs the model for the busy loop. All calls come from the busy-loop thread."""

    @property
    def model_info(self) -> ModelInfo: ...

    @property
    def max_concurrent_batches(self) -> int:
        """How many steps it takes at once, at least 1: those behind the one that runs wait for their turn."""
        ...

    def memory_left(self, num_tokens: int, num_logits: int) -> MemoryLeft:
        """For the KV cache, beside the loaded model and a step of so many tokens and rows of logits."""
        ...

    def initialize_kv_cache(self, num_blocks: int, block_size: int) -> None:
        """Allocate ``num_blocks`` blocks of ``block_size`` tokens. Block 0 is the null block and is never used.

        Raises ValueError if that is more than the memory that is left.
        """
        ...

    def execute_model(self, scheduler_output: SchedulerOutput) -> "Future[ModelRunnerOutput]":
        """Start one step. Steps complete in the order they were started."""
        ...

    @property
    def asleep_parts(self) -> frozenset[str]:
        """Those of ``MEMORY_PARTS`` that ``sleep`` has dropped. Unless it is empty, a step may compute nothing."""
        ...

    def sleep(self) -> None:
        """Free the memory of all parts. No step may be in flight; what the KV cache held is lost."""
        ...

    def wake_up(self, parts: Collection[str]) -> None:
        """Take back those of ``parts`` that sleep: the weights from the model's files, the KV cache empty.

        Raises an exception that says why it cannot be; the part then sleeps on.
        """
        ...

    def load_lora(self, key: int, path: str) -> "Future[None]":
        """Read the adapter in the folder ``path``, beside the steps; once that is done, requests may name ``key``.

        The Future has an exception that says what is wrong with its files. Whatever sleeps, adapters come back with the
        weights. Raises RuntimeError where there are none.
        """
        ...

    def unload_lora(self, key: int) -> None:
        """Forget an adapter, also one whose load has failed: of several ranks, some may have it.

        Steps that were started may still need it, later ones do not.
        """
        ...

    def start_profile(self, prefix: str | None, num_skipped: int, max_steps: int | None) -> None:
        """Record steps, from the one after the next ``num_skipped``, at most ``max_steps`` of them.

        Raises ValueError for a setting that is not allowed, RuntimeError where there is no profiling or it goes on.
        """
        ...

    def stop_profile(self) -> None:
        """Write what was recorded to a file named after the prefix. Raises RuntimeError if no profile was started."""
        ...

    def collective_rpc(
        self, method: str, timeout_s: float | None, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[Any]:
        """What each worker answers to one of ``core.executor.worker_calls``, by rank. Raises ValueError for others."""
        ...

    def on_failure(self, callback: Callable[[], None]) -> None:
        """Call ``callback``, from any thread and at most once, when the executor can no longer run steps.

        The steps in flight then end too, with an exception: nobody waits for them in vain.
        """
        ...

    def shutdown(self) -> None:
        """Free everything; leaves no process behind. May be called twice."""
        ...
