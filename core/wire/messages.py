"""The messages of the wire, field by field as vLLM 0.25.1 declares them.

Positional msgpack arrays: requests, outputs, utility calls, LoRA requests, log-probabilities.
Msgpack maps: sampling parameters, statistics (``core.wire.stats``), events, the handshake and the ready response.

A position in an array is part of the protocol: append fields, never insert, reorder or remove one.
"""

import enum
import hashlib
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from core.wire.sampling_params import SamplingParams
from core.wire.stats import SchedulerStats
from core.wire.tensor import Tensor

ENGINE_CORE_DEAD = b"ENGINE_CORE_DEAD"
"""The one raw frame (not msgpack) that a dying core sends to every front end."""


REFUSED = "refused: "
"""How the ``stop_reason`` of an ERROR begins if the core did not take the request on: what follows is wrong with it."""


def without_words(cause: str) -> str:
    """What is wrong with a request, for a log: of a form only the field, as the rest may be the caller's own words."""
    field, _, _ = cause.partition(" ")
    return f"{field} is wrong" if field.startswith("structured_outputs.") else cause


class RequestType(enum.Enum):
    """First frame of every message to the core: one raw byte. The last three never leave the process."""

    ADD = b"\x00"
    ABORT = b"\x01"
    START_DP_WAVE = b"\x02"
    UTILITY = b"\x03"
    EXECUTOR_FAILED = b"\x04"
    WAKEUP = b"\x05"
    FRONT_END_LOST = b"\xff"


class FinishReason(enum.IntEnum):
    """Why a request ended. ERROR is an internal error of that one request and may be retried."""

    STOP = 0
    LENGTH = 1
    ABORT = 2
    ERROR = 3
    REPETITION = 4


class EventType(enum.IntEnum):
    """What happened to a request in the scheduler."""

    QUEUED = 1
    SCHEDULED = 2
    PREEMPTED = 3


class LogprobsLists(NamedTuple):
    """Log-probabilities of ``n`` new tokens. Column 0 is the sampled token, columns 1..k the best k in falling order.

    ``token_ids`` int32 [n, k+1], ``logprobs`` float32 [n, k+1], ``ranks`` int64 [n] (1 = most likely).
    """

    token_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    ranks: NDArray[np.int64]
    cu_num_generated_tokens: list[int] | None = None


class LogprobsTensors(NamedTuple):
    """Log-probabilities of a prompt of ``p`` tokens: row i scores token i+1, so there are p-1 rows.

    ``token_ids`` int32 [p-1, k+1], ``logprobs`` float32 [p-1, k+1], ``ranks`` int32 [p-1] (1 = most likely).
    """

    token_ids: Tensor
    logprobs: Tensor
    ranks: Tensor
    cu_num_generated_tokens: list[int] | None = None


class LoRARequest(msgspec.Struct, array_like=True, omit_defaults=True):
    """The adapter a request runs with. Also decodes as vLLM 0.33 lays it out: without ``tensorizer_config_dict``."""

    lora_name: str
    lora_int_id: int
    lora_path: str = ""
    base_model_name: str | None = None
    tensorizer_config_dict: dict[str, Any] | bool | None = None
    load_inplace: bool = False
    is_3d_lora_weight: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.tensorizer_config_dict, bool):
            self.load_inplace, self.is_3d_lora_weight = self.tensorizer_config_dict, self.load_inplace
            self.tensorizer_config_dict = None


class EngineCoreRequest(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """ADD: one prompt to continue. ``request_id`` is the internal id, unique among live requests."""

    request_id: str
    prompt_token_ids: list[int] | None
    mm_features: list[Any] | None
    sampling_params: SamplingParams | None
    pooling_params: Any
    arrival_time: float
    """Wall clock of the front end, seconds since the epoch."""
    lora_request: LoRARequest | None
    cache_salt: str | None
    data_parallel_rank: int | None
    prompt_embeds: Tensor | None = None
    prompt_is_token_ids: list[bool] | None = None
    client_index: int = 0
    """Index of the output socket on which to answer."""
    current_wave: int = 0
    priority: int = 0
    """Lower runs earlier."""
    trace_headers: dict[str, str] | None = None
    resumable: bool = False
    external_req_id: str | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: dict[str, Any] | None = None
    abort_immediately: bool = False

    @property
    def num_prompt_tokens(self) -> int:
        """Rows of ``prompt_embeds`` count as tokens."""
        return len(self.prompt_token_ids or ()) if self.prompt_embeds is None else len(self.prompt_embeds.array)


class UtilityCall(msgspec.Struct, array_like=True):
    """UTILITY: call ``method`` on the core between two steps. ``call_id`` is a uint64 of the caller's choice."""

    client_index: int
    call_id: int
    method: str
    args: list[Any]


class EngineCoreEvent(msgspec.Struct):
    """``timestamp`` is the core's monotonic clock in seconds: never compare it with another process's clock."""

    type: EventType
    timestamp: float


class PrefillStats(msgspec.Struct):
    """Token counts of one request's prefill; sent once, with its first output."""

    num_prompt_tokens: int = 0
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    num_local_cached_tokens: int = 0
    num_external_cached_tokens: int = 0


class EngineCoreOutput(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """What one step gave one request. It is the request's last output if and only if ``finish_reason`` is set."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: LogprobsLists | None = None
    new_prompt_logprobs_tensors: LogprobsTensors | None = None
    pooling_output: Tensor | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    events: list[EngineCoreEvent] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    trace_headers: dict[str, str] | None = None
    prefill_stats: PrefillStats | None = None
    routed_experts: NDArray[Any] | None = None
    num_nans_in_logits: int = 0

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None


class UtilityOutput(msgspec.Struct, array_like=True, gc=False):
    """Answer to a UtilityCall. ``failure_message`` set: it failed. Else ``result`` is ``(None, value)``."""

    call_id: int
    failure_message: str | None = None
    result: tuple[Any, Any] | None = None


class EngineCoreOutputs(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """One step's outputs for one front end, or one utility answer: never both in one message.

    ``timestamp`` is the core's monotonic clock in seconds.
    """

    engine_index: int = 0
    outputs: list[EngineCoreOutput] = msgspec.field(default_factory=list)
    scheduler_stats: SchedulerStats | None = None
    timestamp: float = 0.0
    utility_output: UtilityOutput | None = None
    finished_requests: list[str] | None = None
    wave_complete: int | None = None
    start_wave: int | None = None


class EngineHello(msgspec.Struct, omit_defaults=True):
    """HELLO and READY, core to front end on the handshake socket."""

    status: str
    local: bool
    headless: bool
    parallel_config_hash: str | None = None


class EngineAddresses(msgspec.Struct):
    """The sockets to connect to: one input and one output address per front-end process."""

    inputs: list[str]
    outputs: list[str]
    coordinator_input: str | None = None
    coordinator_output: str | None = None
    frontend_stats_publish_address: str | None = None


class ParallelConfig(msgspec.Struct, omit_defaults=True, frozen=True):
    """What the cores of one data-parallel group have in common. Empty unless they step in lockstep.

    ``data_parallel_master_ip``, with one of the ports: where they meet each other.
    """

    data_parallel_master_ip: str | None = None
    data_parallel_master_port: int | None = None
    data_parallel_master_port_list: list[int] | None = msgspec.field(
        default=None, name="_data_parallel_master_port_list"
    )
    data_parallel_size: int = 1

    @property
    def hash(self) -> str | None:
        """The same on every core of a group; None for a core that is alone."""
        if self.data_parallel_size == 1:
            return None
        return hashlib.sha256(msgspec.msgpack.encode(self)).hexdigest()


class EngineInit(msgspec.Struct):
    """INIT, front end to core: the answer to HELLO."""

    addresses: EngineAddresses
    parallel_config: ParallelConfig = msgspec.field(default_factory=ParallelConfig)


class EngineReadyResponse(msgspec.Struct, kw_only=True):
    """First message of a core on every input socket; it also teaches the ROUTER the core's identity.

    ``num_gpu_blocks`` counts KV blocks on whatever device the core uses.
    """

    max_model_len: int
    num_gpu_blocks: int
    block_size: int
    dp_stats_address: str | None = None
    dtype: str
    vllm_version: str
    world_size: int = 1
    data_parallel_size: int = 1
    kv_cache_size_tokens: int | None = None
    kv_cache_max_concurrency: float | None = None
    # What follows vLLM 0.33 asks for, and 0.25.1 ignores.
    tensor_parallel_size: int | msgspec.UnsetType = msgspec.UNSET
    pipeline_parallel_size: int | msgspec.UnsetType = msgspec.UNSET
    decode_context_parallel_size: int | msgspec.UnsetType = msgspec.UNSET
    data_parallel_rank: int | msgspec.UnsetType = msgspec.UNSET
    max_num_seqs: int | msgspec.UnsetType = msgspec.UNSET
    max_num_batched_tokens: int | msgspec.UnsetType = msgspec.UNSET
    instance_id: str | msgspec.UnsetType = msgspec.UNSET
    supports_lora: bool | msgspec.UnsetType = msgspec.UNSET
    max_loras: int | msgspec.UnsetType = msgspec.UNSET
    enable_sleep_mode: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether ``sleep`` gives memory back. Not required."""
    resume_key: str | msgspec.UnsetType = msgspec.UNSET
    """See ``core.wire.resume``. Of our own cores alone."""
