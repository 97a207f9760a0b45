"""What the machine allows: its rates, measured on the spot, and from them the least time that each workload takes.

A step takes at least the time in which its weights and its context are read from memory, and at least the time in which
its multiplications are done; the two may overlap. The weights are read once a step however many rows share it.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader

from bench.peers.peer import Family
from bench.workload import Workload

_READ_BYTES = 1 << 30
_GEMM_SIZE = 2048
_REPEATS = 5
_CONTEXT_BYTES = {Family.FLOAT32: 4, Family.QUANTIZED: 2}
"""Of each key and value: peers that quantize weights keep them in 16 bits."""


@dataclass(frozen=True)
class Rates:
    """Of all threads together."""

    read_bytes_per_s: float
    float32_flops: float
    """Floating-point operations/s of a product of two large float32 matrices, a multiply-add being two."""
    int8_ops: float
    """As float32_flops, of 8-bit matrices."""

    @classmethod
    def best(cls, several: Sequence["Rates"]) -> "Rates":
        return cls(*(max(getattr(rates, field.name) for rates in several) for field in fields(cls)))


def measure_rates(num_threads: int) -> Rates:
    """Best of several, in a few seconds: what else runs can only slow it down."""
    torch.set_num_threads(num_threads)
    data = torch.ones(_READ_BYTES // 4)
    left, right = torch.randn(_GEMM_SIZE, _GEMM_SIZE), torch.randn(_GEMM_SIZE, _GEMM_SIZE)
    flops = 2.0 * _GEMM_SIZE**3
    return Rates(
        read_bytes_per_s=_READ_BYTES / _best_s(lambda: data.sum()),
        float32_flops=flops / min(_best_s(multiply) for multiply in _float32_products(left, right)),
        int8_ops=flops / min(_best_s(multiply) for multiply in _int8_products(left, right)),
    )


def _float32_products(left: torch.Tensor, right: torch.Tensor) -> list[Callable[[], Any]]:
    packed = torch.ops.mkldnn._reorder_linear_weight(right, _GEMM_SIZE)
    linear = torch.ops.mkldnn._linear_pointwise
    return [lambda: left @ right, lambda: linear(left, packed, None, "none", [], "")]


def _int8_products(left: torch.Tensor, right: torch.Tensor) -> list[Callable[[], Any]]:
    """FBGEMM and oneDNN as torch has them; the rounding of one matrix is part of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        weights = torch.quantize_per_tensor(right, 0.1, 0, torch.qint8)
    products: list[Callable[[], Any]] = []
    for engine in {"x86", "fbgemm", "onednn"}.intersection(torch.backends.quantized.supported_engines):
        torch.backends.quantized.engine = engine
        packed = torch.ops.quantized.linear_prepack(weights, None)
        products.append(partial(torch.ops.quantized.linear_dynamic, left, packed, True))
    whole = torch.ones(_GEMM_SIZE, _GEMM_SIZE, dtype=torch.int8)
    return [*products, lambda: torch._int_mm(whole, whole)]


def _best_s(compute: Callable[[], Any]) -> float:
    durations = []
    for _ in range(_REPEATS):
        start = time.monotonic()
        compute()
        durations.append(time.monotonic() - start)
    return min(durations)


@dataclass(frozen=True)
class ModelSize:
    """``body_weights`` are of the linear layers, ``head_weights`` of the vocabulary's; norms are left out."""

    num_layers: int
    query_size: int
    """Of all heads of a token."""
    key_value_size: int
    """Of all keys, or values, of a token in a layer."""
    body_weights: int
    head_weights: int
    file_bytes: int
    """What the file holds of both."""

    @classmethod
    def of(cls, gguf: Path) -> "ModelSize":
        """Of the Llama architecture."""
        reader = GGUFReader(gguf)
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        head = tensors.get("output.weight", tensors["token_embd.weight"])
        body = [tensor for name, tensor in tensors.items() if name.startswith("blk.") and len(tensor.shape) == 2]
        return cls(
            num_layers=reader.fields["llama.block_count"].contents(),
            query_size=int(tensors["blk.0.attn_q.weight"].shape[1]),
            key_value_size=int(tensors["blk.0.attn_k.weight"].shape[1]),
            body_weights=sum(int(tensor.n_elements) for tensor in body),
            head_weights=int(head.n_elements),
            file_bytes=sum(int(tensor.n_bytes) for tensor in (*body, head)),
        )


@dataclass(frozen=True)
class Limits:
    """Least times, in seconds, of a family of engines."""

    family: Family
    rates: Rates
    model: ModelSize

    def step_s(self, rows: int, context: float) -> float:
        """One token for each of ``rows`` requests, which have ``context`` tokens each before it."""
        return self._roofline_s(rows, rows, rows * context)

    def prefill_s(self, num_tokens: int, num_before: int = 0, rows: int = 1) -> float:
        """``num_tokens`` for each of ``rows`` requests behind ``num_before`` known ones, and the first answers."""
        pairs = num_tokens * num_before + num_tokens * (num_tokens + 1) / 2
        return self._roofline_s(rows * num_tokens, rows, rows * pairs, rows * num_before)

    def _roofline_s(self, num_tokens: float, num_answers: int, pairs: float, num_read: float | None = None) -> float:
        """``pairs``: of a token and one that it attends to; ``num_read``: the tokens whose keys and values are read.

        operations = 2·tokens·body + 2·answers·head in the family's arithmetic, 4·query_size·layers·pairs in float32;
        bytes = the weights + 2·key_value_size·layers·read of the context.
        """
        rates, model = self.rates, self.model
        linear = 2 * (num_tokens * model.body_weights + num_answers * model.head_weights)
        attention = 4 * model.query_size * model.num_layers * pairs
        compute_s = linear / self._linear_ops + attention / rates.float32_flops
        context = 2 * model.key_value_size * model.num_layers * (pairs if num_read is None else num_read)
        read_s = (self._weight_bytes + context * _CONTEXT_BYTES[self.family]) / rates.read_bytes_per_s
        return max(compute_s, read_s)

    @property
    def _linear_ops(self) -> float:
        if self.family is Family.FLOAT32:
            return self.rates.float32_flops
        return max(self.rates.float32_flops, self.rates.int8_ops)

    @property
    def _weight_bytes(self) -> int:
        if self.family is Family.FLOAT32:
            return 4 * (self.model.body_weights + self.model.head_weights)
        return self.model.file_bytes

    def ttft_s(self, workload: Workload) -> float:
        """Of a request alone, nothing being cached."""
        return self.prefill_s(workload.prompt_tokens)

    def itl_s(self, workload: Workload) -> float:
        """At half the answer."""
        return self.step_s(workload.concurrency, workload.prompt_tokens + workload.output_tokens / 2)

    def wave_s(self, workload: Workload, is_cached: bool = False) -> float:
        """``concurrency`` requests sent together, to the last token: what they share is computed once, or never."""
        shared, rows = workload.shared_prefix_tokens, workload.concurrency
        shared_s = self.prefill_s(shared) if shared and not is_cached else 0.0
        own_s = self.prefill_s(workload.prompt_tokens - shared, shared, rows)
        return shared_s + own_s + (workload.output_tokens - 1) * self.itl_s(workload)
