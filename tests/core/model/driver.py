"""A scheduler as simple as can be, which drives a model runner by hand."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from core.executor.interface import CachedRequest, ModelRunnerOutput, NewRequest, SchedulerOutput
from core.model.attention.kv_layout import KVLayout
from core.model.runner import ModelRunner
from core.prompt_embeds import PromptEmbeds
from core.wire.messages import LogprobsLists, LogprobsTensors
from core.wire.sampling_params import SamplingParams
from tests.core.model.forward import spread_blocks


@dataclass
class Ask:
    """A request and, once it ran, what came of it. Blocks given from the start hold a cached prefix."""

    request_id: str
    prompt: list[int]
    params: SamplingParams
    seed: int = 0
    output: list[int] = field(default_factory=list)
    logprobs: list[LogprobsLists] = field(default_factory=list)
    prompt_logprobs: LogprobsTensors | None = None
    num_nans: int = 0
    blocks: list[int] = field(default_factory=list)
    num_computed: int = 0
    embeds: PromptEmbeds | None = None
    lora: int | None = None

    @property
    def token_ids(self) -> list[int]:
        return self.prompt + self.output

    @property
    def num_uncomputed(self) -> int:
        return len(self.token_ids) - self.num_computed


def _no_draft(_: Ask) -> list[int]:
    return []


class Driver:
    """Blocks are handed out in random order, so that no request has its own in a row.

    Of several groups of layers each has its own ``num_blocks``. ``draft``: what may follow a request's tokens.
    """

    def __init__(
        self,
        runner: ModelRunner,
        num_blocks: int = 256,
        block_size: int = 16,
        draft: Callable[[Ask], list[int]] = _no_draft,
    ) -> None:
        shape = runner.model.architecture
        self._num_groups = len(KVLayout(shape.windows, shape.max_model_len).windows)
        self._num_blocks = num_blocks
        runner.initialize_kv_cache(num_blocks * self._num_groups, block_size)
        self.runner = runner
        self._draft = draft
        self._block_size = block_size
        self._known: set[str] = set()
        self._free = list(range(1, num_blocks))
        random.Random(0).shuffle(self._free)

    def run(self, asks: list[Ask], num_tokens: int | dict[str, int], budget: int = 512) -> None:
        """Until each request has its ``num_tokens`` output tokens; at most ``budget`` tokens in a step."""
        while running := [ask for ask in asks if len(ask.output) < _wanted(ask, num_tokens)]:
            counts = {}
            for ask in running:
                counts[ask.request_id] = min(ask.num_uncomputed, budget - sum(counts.values()))
            self.step({ask.request_id: ask for ask in running}, counts)

    def step(self, asks: dict[str, Ask], counts: dict[str, int]) -> ModelRunnerOutput:
        """Compute the next ``counts`` tokens."""
        work = SchedulerOutput([], [], {name: count for name, count in counts.items() if count}, [])
        for name, count in counts.items():
            if 0 < count == asks[name].num_uncomputed and (draft := self._draft(asks[name])):
                work.draft_token_ids[name] = draft
                work.num_scheduled_tokens[name] += len(draft)
        for name, count in work.num_scheduled_tokens.items():
            self._describe(asks[name], count, work)
        output = self.runner.execute(work)
        for name in work.num_scheduled_tokens:
            _record(asks[name], counts[name], output)
        return output

    def finish(self, *asks: Ask) -> None:
        """Let go of the requests; their blocks come into use again first. One that runs again starts over."""
        self.runner.execute(SchedulerOutput([], [], {}, [ask.request_id for ask in asks]))
        for ask in asks:
            self._known.discard(ask.request_id)
            self._free += ask.blocks
            ask.blocks, ask.num_computed = [], 0

    def _describe(self, ask: Ask, count: int, work: SchedulerOutput) -> None:
        needed = -(-(ask.num_computed + count) // self._block_size) - len(ask.blocks)
        new_blocks = [self._free.pop() for _ in range(max(needed, 0))]
        ask.blocks += new_blocks
        if ask.request_id in self._known:
            work.cached_requests.append(CachedRequest(ask.request_id, self._by_group(new_blocks), ask.num_computed))
            return
        self._known.add(ask.request_id)
        prompt, blocks = len(ask.prompt), self._by_group(ask.blocks)
        new = NewRequest(
            *(ask.request_id, ask.token_ids, prompt, ask.params, ask.seed, blocks, ask.num_computed),
            *(ask.embeds, ask.lora),
        )
        work.new_requests.append(new)

    def _by_group(self, block_ids: list[int]) -> list[list[int]]:
        return spread_blocks(block_ids, self._num_groups, self._num_blocks)


def _wanted(ask: Ask, num_tokens: int | dict[str, int]) -> int:
    return num_tokens if isinstance(num_tokens, int) else num_tokens[ask.request_id]


def _record(ask: Ask, count: int, output: ModelRunnerOutput) -> None:
    token_ids = output.sampled_token_ids.get(ask.request_id, [])
    ask.num_computed += count + max(len(token_ids) - 1, 0)
    ask.output += token_ids
    ask.num_nans += output.num_nans_in_logits.get(ask.request_id, 0)
    if ask.request_id in output.logprobs:
        parts = output.logprobs[ask.request_id][:3]
        for row in range(len(token_ids)):
            ask.logprobs.append(LogprobsLists(*(part[row : row + 1] for part in parts)))  # type: ignore[arg-type]
    ask.prompt_logprobs = output.prompt_logprobs.get(ask.request_id, ask.prompt_logprobs)


GREEDY = SamplingParams(temperature=0.0)
