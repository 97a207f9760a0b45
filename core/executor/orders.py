"""What a core tells the ranks of its model, and what they answer.

    core ── Load, then orders, one after the other ──▶ every rank      a rank carries them out in that order, as all do
         ◀── Answer ── each rank, to each order but Execute, which only rank 0 answers: all ranks draw the same tokens

What is sent is msgpack of these types, arrays beside it (``core.wire.codec``): no pickle, no names of classes.
"""

from typing import Any

import msgspec

from core.executor.interface import Executor, ModelRunnerOutput, SchedulerOutput


class Hello(msgspec.Struct, frozen=True):
    """What a rank of another host says first."""

    rank: int
    size: int


class Meeting(msgspec.Struct, frozen=True):
    """Where the ``size`` ranks of a model find each other: rank 0 listens."""

    host: str
    port: int
    size: int


class Order(msgspec.Struct, tag=True):
    """``carry_out`` gives the answer's value, or a Future of it: later orders then need not wait for it.

    A ValueError or RuntimeError is answered with its text.
    """

    def carry_out(self, worker: Executor) -> Any:
        raise NotImplementedError


class Load(Order):
    """The first order: ``settings`` are a ModelConfig's, without the path, which is each host's own."""

    settings: dict[str, Any]
    profile_dir: str | None
    max_lora_rank: int | None
    meeting: Meeting


class Describe(Order):
    """The ModelInfo of the rank's part."""

    def carry_out(self, worker: Executor) -> Any:
        return worker.model_info


class FindMemoryLeft(Order):
    """Its MemoryLeft."""

    num_tokens: int
    num_logits: int

    def carry_out(self, worker: Executor) -> Any:
        return worker.memory_left(self.num_tokens, self.num_logits)


class InitializeKVCache(Order):
    num_blocks: int
    block_size: int

    def carry_out(self, worker: Executor) -> Any:
        worker.initialize_kv_cache(self.num_blocks, self.block_size)


class Execute(Order):
    work: SchedulerOutput

    def carry_out(self, worker: Executor) -> Any:
        return worker.execute_model(self.work).result()


class LoadLora(Order):
    key: int
    path: str

    def carry_out(self, worker: Executor) -> Any:
        return worker.load_lora(self.key, self.path)


class UnloadLora(Order):
    key: int

    def carry_out(self, worker: Executor) -> Any:
        worker.unload_lora(self.key)


class Sleep(Order):
    def carry_out(self, worker: Executor) -> Any:
        worker.sleep()


class WakeUp(Order):
    parts: list[str]

    def carry_out(self, worker: Executor) -> Any:
        worker.wake_up(self.parts)


class AsleepParts(Order):
    def carry_out(self, worker: Executor) -> Any:
        return sorted(worker.asleep_parts)


class StartProfile(Order):
    prefix: str | None
    num_skipped: int
    max_steps: int | None

    def carry_out(self, worker: Executor) -> Any:
        worker.start_profile(self.prefix, self.num_skipped, self.max_steps)


class StopProfile(Order):
    def carry_out(self, worker: Executor) -> Any:
        worker.stop_profile()


class CallWorker(Order):
    method: str
    args: list[Any]
    kwargs: dict[str, Any]

    def carry_out(self, worker: Executor) -> Any:
        (answer,) = worker.collective_rpc(self.method, None, self.args, self.kwargs)
        return answer


class Shutdown(Order):
    """End at once: a rank has nothing that must be put in order."""


AnyOrder = (
    Load
    | Describe
    | FindMemoryLeft
    | InitializeKVCache
    | Execute
    | LoadLora
    | UnloadLora
    | Sleep
    | WakeUp
    | AsleepParts
    | StartProfile
    | StopProfile
    | CallWorker
    | Shutdown
)


class Envelope(msgspec.Struct):
    """An order on its way. ``number``: of the answer too."""

    number: int
    order: AnyOrder


class Answer(msgspec.Struct):
    """``output`` of a step, ``value`` of any other order, or the text of what was raised.

    ``is_fatal``: a step was not carried out, so that the ranks are not as each other any more. That is always said.
    """

    number: int
    output: ModelRunnerOutput | None = None
    value: Any = None
    failure: str | None = None
    is_bad_value: bool = False
    """Whether the failure is a ValueError: about a setting or a file, no fault of the program."""
    is_fatal: bool = False

    @property
    def error(self) -> Exception | None:
        if self.failure is None:
            return None
        return ValueError(self.failure) if self.is_bad_value else RuntimeError(self.failure)
