"""The two versions of the wire that are spoken here, and all that differs between them.

                        0.25 (vLLM 0.25.1)                    0.33 (vLLM 0.33.0)
    EngineCoreRequest   20 elements                           22: session_id and kv_hints at the end
    LoRARequest         [4] tensorizer_config_dict            not there: what follows comes one earlier
    EngineCoreOutput    13 elements, no more                  [9] ec_transfer_params, what follows comes one later
    EngineCoreOutputs   8 elements, no more                   9: weight_version at the end
    result of wake_up   nothing                               a boolean
    statistics                                                keys more, which 0.25 ignores
    ready response                                            keys more that must be there, which 0.25 ignores

``messages`` has the layout of 0.25, in which the core and the gateway think. The first nine elements of an output are
the same in both: who does not know yet whom it speaks to sends these alone.
"""

import enum
import operator
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from numpy.typing import NDArray

from core.wire.codec import Decoder, Frame
from core.wire.messages import (
    EngineCoreEvent,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineReadyResponse,
    FinishReason,
    LogprobsLists,
    LogprobsTensors,
    LoRARequest,
    PrefillStats,
    UtilityOutput,
)
from core.wire.stats import SchedulerStats
from core.wire.tensor import Tensor


class WireVersion(enum.Enum):
    V0_25 = "0.25"
    V0_33 = "0.33"

    @property
    def vllm_version(self) -> str:
        """The release that speaks it."""
        return {"0.25": "0.25.1", "0.33": "0.33.0"}[self.value]


class ResultByVersion(NamedTuple):
    """Result of a utility of which the versions expect different ones. Who is not known gets that of 0.25."""

    in_0_25: Any
    in_0_33: Any


_ARRAY_16 = 0xDC
_VERSION_BY_HEAD = {
    bytes((_ARRAY_16, 0, 20)): WireVersion.V0_25,
    bytes((_ARRAY_16, 0, 21)): WireVersion.V0_33,
    bytes((_ARRAY_16, 0, 22)): WireVersion.V0_33,
}
"""21: a front end of between the two (smg 1.13.0), which reads outputs as 0.33 has them."""
_ALONE = {
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "decode_context_parallel_size": 1,
    "supports_lora": False,
    "max_loras": 0,
    "enable_sleep_mode": False,
}
"""What is true of an engine on one device that says nothing else."""
_FIELDS = EngineCoreOutput.__struct_fields__
_alike = operator.attrgetter(*_FIELDS[:9])
_all = operator.attrgetter(*_FIELDS)


def version_of_request(document: bytes) -> WireVersion | None:
    """The version of whoever sent this ADD, by its number of elements. None: that tells nothing."""
    return _VERSION_BY_HEAD.get(bytes(document[:3]))


def version_of_core(response: EngineReadyResponse) -> WireVersion:
    """The version of the core that introduces itself so. What 0.33 asks for any core may send, so its word counts."""
    if response.vllm_version.startswith("0.25.") or response.instance_id is msgspec.UNSET:
        return WireVersion.V0_25
    return WireVersion.V0_33


def introduction(
    response: EngineReadyResponse, version: WireVersion | None, rank: int, dp_stats_address: str | None
) -> EngineReadyResponse:
    """What a core of ``rank`` says of itself, with all that a front end of either version asks for."""
    alone = {name: default for name, default in _ALONE.items() if getattr(response, name) is msgspec.UNSET}
    return msgspec.structs.replace(
        response,
        **alone,
        vllm_version=(version or WireVersion.V0_25).vllm_version,
        data_parallel_rank=rank,
        dp_stats_address=dp_stats_address,
        instance_id=uuid.uuid4().hex,
    )


def shaped_lora(lora: LoRARequest, version: WireVersion | None) -> object:
    """``lora``, as an argument of a call, as a core of ``version`` reads it."""
    return _lora_in_0_33(lora) if version is WireVersion.V0_33 else lora


def shaped_request(request: EngineCoreRequest, version: WireVersion) -> object:
    """``request`` as a core of ``version`` reads it, for the encoder."""
    if version is WireVersion.V0_25:
        return request
    fields = list(msgspec.structs.astuple(request))
    if request.lora_request is not None:
        fields[6] = _lora_in_0_33(request.lora_request)
    return (*fields, None, None)


def shaped_outputs(outputs: EngineCoreOutputs, version: WireVersion | None) -> object:
    """``outputs`` as a front end of ``version`` reads it, for the encoder; None: as either does."""
    if outputs.utility_output is not None:
        _choose_result(outputs.utility_output, version)
    if version is WireVersion.V0_25:
        return outputs
    shape = _alike if version is None else _output_in_0_33
    engine_index, parts, stats, *others = msgspec.structs.astuple(outputs)
    return (engine_index, [shape(part) for part in parts], stats and _stats_in_0_33(stats), *others)


def decoder_of_outputs(version: WireVersion) -> Callable[[Sequence[Frame]], EngineCoreOutputs]:
    """Decodes messages of a core of ``version``. Raises WireError."""
    if version is WireVersion.V0_25:
        return Decoder(EngineCoreOutputs).decode
    decoder = Decoder(_EngineCoreOutputs33, EngineCoreOutputs.__name__)
    return lambda frames: decoder.decode(frames).plain()


def decoder_of_output(version: WireVersion) -> Callable[[Sequence[Frame]], EngineCoreOutput]:
    """Decodes single outputs in them. Raises WireError."""
    if version is WireVersion.V0_25:
        return Decoder(EngineCoreOutput).decode
    decoder = Decoder(_EngineCoreOutput33, EngineCoreOutput.__name__)
    return lambda frames: decoder.decode(frames).plain()


def _choose_result(answer: UtilityOutput, version: WireVersion | None) -> None:
    if answer.result is not None and isinstance(result := answer.result[1], ResultByVersion):
        answer.result = (None, result.in_0_33 if version is WireVersion.V0_33 else result.in_0_25)


def _lora_in_0_33(lora: LoRARequest) -> tuple[Any, ...]:
    *before, _, load_inplace, is_3d = msgspec.structs.astuple(lora)
    return (*before, load_inplace, is_3d)


def _output_in_0_33(output: EngineCoreOutput) -> tuple[Any, ...]:
    *alike, trace_headers, prefill, routed_experts, num_nans = _all(output)
    more = {"num_cache_creation_tokens": 0}
    return (*alike, None, trace_headers, prefill and msgspec.structs.asdict(prefill) | more, routed_experts, num_nans)


def _stats_in_0_33(stats: SchedulerStats) -> dict[str, Any]:
    prefix_cache = msgspec.structs.asdict(stats.prefix_cache_stats) | {"hits_by_source": {}}
    more: dict[str, Any] = {"num_kv_fetch_reqs_by_stage": {}, "iteration_details": None, "ec_connector_stats": None}
    return msgspec.structs.asdict(stats) | {"prefix_cache_stats": prefix_cache} | more


class _OutputError(msgspec.Struct):
    """Of 0.33: what went wrong with a request that ended as ERROR."""

    message: str = ""


class _EngineCoreOutput33(msgspec.Struct, array_like=True, gc=False):
    """An EngineCoreOutput as 0.33 lays it out; what 0.25 has no place for is not looked at."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: LogprobsLists | None = None
    new_prompt_logprobs_tensors: LogprobsTensors | None = None
    pooling_output: Tensor | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    events: list[EngineCoreEvent] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: Any = None
    trace_headers: dict[str, str] | None = None
    prefill_stats: PrefillStats | None = None
    routed_experts: NDArray[Any] | None = None
    num_nans_in_logits: int = 0
    mm_cache_miss_hashes: Any = None
    new_sampling_mask: Any = None
    spec_decode_metrics: Any = None
    prompt_token_id_logprobs: Any = None
    error: _OutputError | None = None

    def plain(self) -> EngineCoreOutput:
        """The same in the layout of 0.25. The text of an error is its ``stop_reason``."""
        output = EngineCoreOutput(*_all(self))
        if self.error is not None and output.stop_reason is None:
            output.stop_reason = self.error.message
        return output


class _EngineCoreOutputs33(EngineCoreOutputs, array_like=True, gc=False):
    """An EngineCoreOutputs as 0.33 lays it out."""

    outputs: list[_EngineCoreOutput33] = msgspec.field(default_factory=list)  # type: ignore[assignment]
    weight_version: Any = None

    def plain(self) -> EngineCoreOutputs:
        """The same in the layout of 0.25."""
        message = EngineCoreOutputs(*msgspec.structs.astuple(self)[:-1])
        message.outputs = [output.plain() for output in self.outputs]
        return message
