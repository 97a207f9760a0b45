"""Runs the model for one scheduler step: requests in, tokens out."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from core.executor.interface import GrammarBitmask, ModelRunnerOutput, SchedulerOutput
from core.model.attention.backends import AttentionBackend, KVCache, find_backend
from core.model.lora.adapters import Adapters
from core.model.model import Model
from core.model.request_state import RequestState
from core.model.sampling.logits_processors import TokenMask
from core.model.sampling.prompt_logprobs import PromptLogprobs
from core.model.sampling.rows import Row
from core.model.sampling.sampler import Sampler
from core.model.settling import settle
from core.model.span import Span
from core.model.step_batch import StepBatch


class ModelRunner:
    """Keeps the requests that the scheduler told it of, and the KV cache they share."""

    def __init__(self, model: Model, adapters: Adapters | None = None, attention_backend: str = "auto") -> None:
        self._model: Model | None = model
        self._adapters = adapters
        self._backend_name = attention_backend
        self._backend: AttentionBackend | None = None
        self._num_blocks = 0
        self._cache: KVCache | None = None
        self._requests: dict[str, RequestState] = {}
        self._prompt_logprobs: dict[str, PromptLogprobs] = {}
        self._sampler = Sampler()

    def __repr__(self) -> str:
        family = self._model.architecture.family if self._model else "asleep"
        return f"ModelRunner({family}, {len(self._requests)} requests)"

    @property
    def model(self) -> Model:
        """Raises RuntimeError while it has none."""
        if self._model is None:
            raise RuntimeError("the weights are asleep")
        return self._model

    @property
    def cache(self) -> KVCache:
        """Raises RuntimeError while it has none."""
        if self._cache is None:
            raise RuntimeError("the KV cache is asleep")
        return self._cache

    @property
    def memory_bytes(self) -> dict[str, int]:
        """What model and KV cache hold; 0 = asleep."""
        return {
            "weights": self._model.num_weight_bytes if self._model else 0,
            "kv_cache": self._cache.num_bytes if self._cache else 0,
        }

    def drop(self) -> None:
        """Forget model and KV cache: their memory is free when this returns."""
        self._model = self._cache = None

    def set_model(self, model: Model) -> None:
        """Go on with ``model``, which is the one dropped, loaded again."""
        self._model = model

    def initialize_kv_cache(self, num_blocks: int, block_size: int) -> None:
        """Block 0 is the null block. Raises ValueError if the attention cannot read such blocks."""
        self._backend = find_backend(self._backend_name, self.model, block_size)
        self._num_blocks = num_blocks
        self.restore_kv_cache()

    def restore_kv_cache(self) -> None:
        """One like the one that was dropped, empty. The model may still be asleep."""
        self._cache = self._existing_backend.make_cache(self._num_blocks)

    @torch.inference_mode()
    def execute(self, work: SchedulerOutput, before_forward: Callable[[], None] = lambda: None) -> ModelRunnerOutput:
        """Prefill chunks, decodes and drafts in one forward pass.

        Requests whose last known token it computed get a new one, and one more for each draft that was right.
        ``before_forward`` is called when all is ready for the pass, if there is one.
        """
        self._forget(work.finished_request_ids)
        self._learn(work)
        spans = [self._span(request_id, count) for request_id, count in work.num_scheduled_tokens.items() if count]
        if not spans:
            return ModelRunnerOutput()
        batch = StepBatch(spans, self.cache, self._existing_backend.attend)
        if self._adapters is not None:
            self._adapters.begin_step((span.request.lora, span.num_tokens) for span in batch.spans)
        inputs = self.model.embed(batch.token_ids)
        batch.place_embeds(inputs)
        before_forward()
        hidden = self.model.forward(inputs, batch.positions, batch.attention)
        output = self._sample(batch, hidden, work.grammar_bitmask)
        self._score_prompts(batch, hidden, output)
        return output

    @property
    def _existing_backend(self) -> AttentionBackend:
        assert self._backend is not None, "initialize_kv_cache comes first"
        return self._backend

    def _forget(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            self._requests.pop(request_id, None)
            self._prompt_logprobs.pop(request_id, None)

    def _learn(self, work: SchedulerOutput) -> None:
        for new in work.new_requests:
            self._requests[new.request_id] = request = RequestState(new)
            if new.sampling_params.prompt_logprobs is not None and not request.is_resumed:
                self._prompt_logprobs[new.request_id] = PromptLogprobs(
                    new.sampling_params.prompt_logprobs, request.num_prompt_tokens, self.model.architecture.vocab_size
                )
        for cached in work.cached_requests:
            request = self._requests[cached.request_id]
            request.add_blocks(cached.new_block_ids)
            request.num_computed_tokens = cached.num_computed_tokens
        for request_id, draft_token_ids in work.draft_token_ids.items():
            self._requests[request_id].add_draft(draft_token_ids)

    def _span(self, request_id: str, count: int) -> Span:
        request = self._requests[request_id]
        return Span(request, request.num_computed_tokens, count)

    def _sample(self, batch: StepBatch, hidden: Tensor, grammar: GrammarBitmask | None) -> ModelRunnerOutput:
        if not batch.sampled:
            return ModelRunnerOutput()
        rows = list(batch.sampled.values())
        mask = None if grammar is None else _token_mask(grammar, rows)
        if len(rows) < len(hidden):
            hidden = hidden[list(batch.sampled)]
        return settle(rows, self._sampler.sample(self.model.logits(hidden), rows, mask))

    def _score_prompts(self, batch: StepBatch, hidden: Tensor, output: ModelRunnerOutput) -> None:
        if not self._prompt_logprobs:
            return
        for span, end in zip(batch.spans, batch.ends, strict=True):
            request_id = span.request.request_id
            if (logprobs := self._prompt_logprobs.get(request_id)) is None:
                continue
            logprobs.score(self.model, span, hidden[end - span.num_tokens : end])
            if span.stop >= span.request.num_prompt_tokens:
                output.prompt_logprobs[request_id] = self._prompt_logprobs.pop(request_id).result()


def _token_mask(grammar: GrammarBitmask, rows: Sequence[Row]) -> TokenMask:
    """For a batch of ``rows``, of which a request with a grammar has one."""
    indices = {row.request.request_id: index for index, row in enumerate(rows)}
    bits = torch.frombuffer(bytearray(grammar.bits), dtype=torch.int32).view(len(grammar.request_ids), -1)
    return TokenMask([indices[request_id] for request_id in grammar.request_ids], bits)
