"""What the model runner keeps of a request between steps."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.executor.interface import NewRequest


class IntList:
    """Integers that grow at the end and are read as one numpy array."""

    def __init__(self, values: Sequence[int]) -> None:
        self._array = np.array(values, np.int64)
        self._length = len(values)

    def __len__(self) -> int:
        return self._length

    def extend(self, values: Sequence[int]) -> None:
        end = self._length + len(values)
        if end > len(self._array):
            self._array = np.concatenate((self._array[: self._length], np.zeros(end, np.int64)))
        self._array[self._length : end] = values
        self._length = end

    def truncate(self, length: int) -> None:
        """Forget what comes after the first ``length``."""
        assert length <= self._length, "what was there"
        self._length = length

    @property
    def array(self) -> NDArray[np.int64]:
        return self._array[: self._length]


class RequestState:
    """One request: its sampling parameters, its tokens so far and its blocks, by group of layers."""

    def __init__(self, request: NewRequest) -> None:
        self.request_id = request.request_id
        self.sampling_params = request.sampling_params
        self.seed = request.seed
        self.num_prompt_tokens = request.num_prompt_tokens
        self.num_computed_tokens = request.num_computed_tokens
        self.is_resumed = len(request.token_ids) > request.num_prompt_tokens
        self.token_ids = IntList(request.token_ids)
        self.block_tables = [IntList(block_ids) for block_ids in request.block_ids]
        self.embeds = request.embeds
        self.lora = request.lora
        self.num_draft_tokens = 0

    def __repr__(self) -> str:
        tokens = f"{self.num_computed_tokens}/{len(self.token_ids)} tokens"
        return f"RequestState({self.request_id!r}, {tokens}, {sum(map(len, self.block_tables))} blocks)"

    def add_blocks(self, new_block_ids: Sequence[Sequence[int]]) -> None:
        """By group; nothing if no group gained any."""
        for table, block_ids in zip(self.block_tables, new_block_ids, strict=bool(new_block_ids)):
            table.extend(block_ids)

    def add_draft(self, token_ids: Sequence[int]) -> None:
        """They stand at the end of ``token_ids`` for one step, until ``settle``."""
        self.token_ids.extend(token_ids)
        self.num_draft_tokens = len(token_ids)

    def settle(self, token_ids: Sequence[int]) -> None:
        """Put ``token_ids`` where the draft was, if there was one."""
        if self.num_draft_tokens:
            self.token_ids.truncate(len(self.token_ids) - self.num_draft_tokens)
            self.num_draft_tokens = 0
        self.token_ids.extend(token_ids)

    @property
    def draft_token_ids(self) -> NDArray[np.int64]:
        return self.token_ids.array[len(self.token_ids) - self.num_draft_tokens :]

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def prompt_token_ids(self) -> NDArray[np.int64]:
        return self.token_ids.array[: self.num_prompt_tokens]

    @property
    def seen_prompt_token_ids(self) -> NDArray[np.int64]:
        """Without the placeholders that rows of ``embeds`` stand for."""
        return self.prompt_token_ids if self.embeds is None else self.prompt_token_ids[self.embeds.is_token]

    @property
    def output_token_ids(self) -> NDArray[np.int64]:
        return self.token_ids.array[self.num_prompt_tokens :]
