"""What FakeExecutor keeps of a request, and what it expects to find where the request's blocks are."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.executor.interface import CachedRequest, NewRequest
from core.wire.messages import LogprobsLists, LogprobsTensors
from core.wire.tensor import Tensor

_MASK = (1 << 62) - 1


class FakeExecutorError(Exception):
    """The scheduler's output contradicts what this executor knows; the text says how."""


class FakeRequest:
    """Its token ids grow by what the executor samples."""

    def __init__(self, new: NewRequest) -> None:
        self.request_id = new.request_id
        self.token_ids = new.token_ids
        self.num_prompt_tokens = new.num_prompt_tokens
        self.num_logprobs = new.sampling_params.logprobs
        self.num_prompt_logprobs = new.sampling_params.prompt_logprobs
        self.block_ids = [list(block_ids) for block_ids in new.block_ids]
        self.num_cached_tokens = self.num_computed_tokens = new.num_computed_tokens
        self.lora = new.lora
        self._embeds = new.embeds
        self._expected: list[int] = []

    def __repr__(self) -> str:
        progress = f"{self.num_computed_tokens} of {len(self.token_ids)} tokens computed"
        return f"{self.request_id} ({progress}, blocks {self.block_ids})"

    def update(self, cached: CachedRequest) -> None:
        """It has more blocks, and goes on where it is: raises FakeExecutorError if that is not what is meant."""
        if cached.num_computed_tokens != self.num_computed_tokens:
            raise FakeExecutorError(f"{self}: the scheduler counts {cached.num_computed_tokens} computed")
        for block_ids, gained in zip(self.block_ids, cached.new_block_ids, strict=bool(cached.new_block_ids)):
            block_ids += gained

    def settle(self, num_known: int, token_ids: list[int]) -> None:
        """``token_ids`` come after the known ones, in place of drafts; the last of them is not computed."""
        self.token_ids[num_known:] = token_ids
        self.num_computed_tokens = len(self.token_ids) - 1
        del self._expected[self.num_computed_tokens :]

    def inputs(self, start: int, end: int) -> list[int]:
        """The tokens at [start, end), those of which the prompt has rows read from the rows."""
        tokens = np.array(self.token_ids[start:end])
        if self._embeds is not None:
            places = np.flatnonzero(~self._embeds.is_token[start:end])
            tokens[places] = self._embeds.rows.array[start + places, 0]
        return [int(token) for token in tokens]

    def find_slots(self, group_idx: int, start: int, end: int, block_size: int) -> NDArray[np.int64]:
        """Where a group has the tokens at [start, end), int64 [end - start]."""
        block_ids = self.block_ids[group_idx]
        if end > len(block_ids) * block_size or 0 in block_ids[start // block_size :]:
            raise FakeExecutorError(f"{self}: no place for {end} tokens in blocks of {block_size}")
        positions = np.arange(start, end)
        return np.asarray(block_ids)[positions // block_size] * block_size + positions % block_size

    def score_prompt(self, num_logprobs: int) -> LogprobsTensors:
        """One row for each prompt token but the first, if this executor computed all of them."""
        if self.num_cached_tokens:
            raise FakeExecutorError(f"{self}: prompt_logprobs, but {self.num_cached_tokens} tokens were not computed")
        rows = make_logprobs(self.token_ids[1 : self.num_prompt_tokens], num_logprobs)
        return LogprobsTensors(Tensor(rows.token_ids), Tensor(rows.logprobs), Tensor(rows.ranks.astype(np.int32)))

    def hash_before(self, position: int) -> int:
        """Of the tokens before ``position``."""
        return self.expected_slots(position)[-1] if position else self.lora or 0

    def expected_slots(self, count: int) -> list[int]:
        """What the first ``count`` slots must hold."""
        known = len(self._expected)
        self._expected += hash_prefix(self.inputs(known, count), self._expected[-1] if known else self.lora or 0)
        return self._expected[:count]


def hash_prefix(token_ids: Sequence[int], before: int) -> list[int]:
    """One hash per token, each of the one before it and its token; the adapter's key, or 0, comes before the first."""
    hashes = []
    for token_id in token_ids:
        before = ((before ^ (token_id + 1)) * 0x5851F42D4C957F2D + 0x14057B7EF767814F) & _MASK
        hashes.append(before)
    return hashes


def make_logprobs(token_ids: Sequence[int], num_logprobs: int) -> LogprobsLists:
    """A row for each sampled token: it, then ``num_logprobs`` others, each half as likely as the one before."""
    columns = np.arange(num_logprobs + 1)
    return LogprobsLists(
        token_ids=(np.asarray(token_ids, np.int64)[:, None] + columns).astype(np.int32),
        logprobs=np.repeat(-np.log(2.0) * (columns[None] + 1), len(token_ids), 0).astype(np.float32),
        ranks=np.ones(len(token_ids), dtype=np.int64),
    )
