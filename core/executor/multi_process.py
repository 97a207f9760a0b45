"""An executor whose model is shared by several rank processes, each with a part of every layer.

    core process                                          rank processes, children of the core or of other hosts
    ┌──────────────────────────────────┐   orders         ┌────────┐
    │ busy loop ─ ask ─▶ RankLink 0    │═════════════════▶│ rank 0 │─┐
    │     ▲              RankLink 1 …  │═════════════════▶│ rank 1 │─┴ collectives, by gloo or nccl
    │     └── future ─── its thread    │◀═════════════════│        │
    └──────────────────────────────────┘   answers        └────────┘

No rank is in the core's own process: whatever a rank does, hang in a collective for another that is gone, be killed for
its memory, abort in native code, the core lives to say so, and ends the others by force. Nor need the core load torch.

A step goes to all ranks at once. Each draws the same tokens, for each has the same bits of all logits, and draws depend
on seed and position alone; rank 0 answers.
"""

import dataclasses
import itertools
import logging
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from core.config import ModelConfig
from core.executor import orders
from core.executor.channel import as_connection, listen
from core.executor.interface import ModelInfo, ModelRunnerOutput, SchedulerOutput
from core.executor.memory_left import MemoryLeft
from core.executor.rank_children import RANK_MODULE, RankChildren
from core.executor.rank_link import RankLink, gather
from core.executor.remote_ranks import accept_ranks
from core.hosts import Hosts
from core.wire.codec import Encoder, Frame

logger = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"
_CAUSE_TIMEOUT_S = 0.3
"""A collective fails at once when another rank is gone: for so long that one's end is looked for."""
_SHUTDOWN_TIMEOUT_S = 2.0


class RankLostError(RuntimeError):
    """A rank is gone, or could not carry out a step."""


class MultiProcessExecutor:
    """Steps run one after the other; what one raised is in its future, and is the end of all."""

    max_concurrent_batches = 2

    def __init__(
        self,
        config: ModelConfig,
        hosts: Hosts,
        profile_dir: Path | None = None,
        max_lora_rank: int | None = None,
        module: str = RANK_MODULE,
    ) -> None:
        """``max_lora_rank`` None: no adapters. ``module`` is what a rank process runs.

        Raises ValueError for what is wrong with settings or files, RankLostError if a rank does not survive.
        """
        _check_device(config, hosts)
        self._encoder = Encoder()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._has_ended = False
        self._failure: RankLostError | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._children = RankChildren(config.path, module)
        self._links: list[RankLink] = []
        self._asleep: frozenset[str] = frozenset()
        try:
            self._start(hosts)
            self._ask_each([*self._loads(config, hosts, profile_dir, max_lora_rank)])
            infos = [msgspec.convert(info, ModelInfo) for info in self._ask(orders.Describe())]
        except BaseException:
            self._children.kill()
            self.shutdown()
            raise
        self._kv_bytes_per_token = [info.kv_bytes_per_token for info in infos]
        self._model_info = msgspec.structs.replace(infos[0], kv_bytes_per_token=max(self._kv_bytes_per_token))

    @property
    def model_info(self) -> ModelInfo:
        """The bytes of a token are those on the rank that has most of them."""
        return self._model_info

    @property
    def pids(self) -> dict[int, int]:
        """Of the ranks of this host."""
        return self._children.pids

    @property
    def asleep_parts(self) -> frozenset[str]:
        return self._asleep

    def memory_left(self, num_tokens: int, num_logits: int) -> MemoryLeft:
        """Of the rank that has room for the fewest tokens."""
        answers = self._ask(orders.FindMemoryLeft(num_tokens, num_logits))
        left = [msgspec.convert(answer, MemoryLeft) for answer in answers]
        by_rank = zip(left, self._kv_bytes_per_token, strict=True)
        return min(by_rank, key=lambda rank: rank[0].kv_cache_bytes // rank[1])[0]

    def initialize_kv_cache(self, num_blocks: int, block_size: int) -> None:
        self._ask(orders.InitializeKVCache(num_blocks, block_size))

    def execute_model(self, scheduler_output: SchedulerOutput) -> "Future[ModelRunnerOutput]":
        number = next(self._numbers)
        frames = self._encode(number, orders.Execute(scheduler_output))
        first, *others = self._links
        future = first.ask(number, frames)
        for link in others:
            link.tell(frames)
        return future

    def sleep(self) -> None:
        try:
            self._ask(orders.Sleep())
        finally:
            self._find_asleep_parts()

    def wake_up(self, parts: Collection[str]) -> None:
        try:
            self._ask(orders.WakeUp(list(parts)))
        finally:
            self._find_asleep_parts()

    def load_lora(self, key: int, path: str) -> "Future[Any]":
        """Each rank reads the folder, and keeps its part. One that some rank cannot load is used by none."""
        return gather(self._ask_for_futures([orders.LoadLora(key, path)] * len(self._links)))

    def unload_lora(self, key: int) -> None:
        self._ask_for_futures([orders.UnloadLora(key)] * len(self._links))

    def start_profile(self, prefix: str | None, num_skipped: int, max_steps: int | None) -> None:
        self._ask(orders.StartProfile(prefix, num_skipped, max_steps))

    def stop_profile(self) -> None:
        self._ask(orders.StopProfile())

    def collective_rpc(
        self, method: str, timeout_s: float | None, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[Any]:
        return self._ask(orders.CallWorker(method, list(args), dict(kwargs)), timeout_s)

    def on_failure(self, callback: Callable[[], None]) -> None:
        with self._lock:
            has_failed = self._failure is not None
            if not has_failed:
                self._callbacks.append(callback)
        if has_failed:
            callback()

    def shutdown(self) -> None:
        """Steps in flight are not waited for."""
        with self._lock:
            self._has_ended = True
        frames = self._encode(next(self._numbers), orders.Shutdown())
        for link in self._links:
            link.tell(frames)
        self._children.join(_SHUTDOWN_TIMEOUT_S)
        for link in self._links:
            link.fail(RuntimeError("no order after shutdown"))

    def _start(self, hosts: Hosts) -> None:
        """Processes and links of all ranks, in order."""
        remote = accept_ranks(hosts) if hosts.ranks_elsewhere else {}
        with listen(hosts.master_addr if remote else _LOOPBACK, 0) as store:
            host, port = store.getsockname()[:2]
            self._meeting = orders.Meeting(host, port, hosts.tensor_parallel_size)
            here = {rank: self._start_child(rank, store) for rank in hosts.ranks_here}
        for rank, connection in sorted((here | remote).items()):
            self._links.append(RankLink(rank, connection, self._lose))
        for link in self._links:
            link.start()

    def _loads(
        self, config: ModelConfig, hosts: Hosts, profile_dir: Path | None, max_lora_rank: int | None
    ) -> Iterator[orders.Load]:
        """The first order of each rank: settings are the core's on all hosts, but for the path."""
        settings = msgspec.to_builtins(dataclasses.replace(config, path=Path()), enc_hook=str)
        per_host = len(hosts.ranks_here)
        for rank in range(hosts.tensor_parallel_size):
            own = {**settings, "num_cores_here": config.num_cores_here * per_host}
            if config.device == "cuda":
                own |= {"device": f"cuda:{rank % per_host}", "num_cores_here": 1}
            folder = None if profile_dir is None else str(profile_dir)
            yield orders.Load(own, folder, max_lora_rank, self._meeting)

    def _start_child(self, rank: int, store: socket.socket) -> "Connection[Any, Any]":
        ours, theirs = socket.socketpair()
        fds, flags = [theirs.fileno()], ["--control-fd", str(theirs.fileno())]
        if rank == 0:
            fds.append(store.fileno())
            flags += ["--store-fd", str(store.fileno())]
        with theirs:
            self._children.start(rank, flags, fds)
        return as_connection(ours)

    def _ask(self, order: orders.AnyOrder, timeout_s: float | None = None) -> list[Any]:
        return self._ask_each([order] * len(self._links), timeout_s)

    def _ask_each(self, each: Sequence[orders.AnyOrder], timeout_s: float | None = None) -> list[Any]:
        """What all ranks answer. Raises what the first one raised, or TimeoutError if one takes too long."""
        futures = self._ask_for_futures(each)
        done, missing = wait(futures, timeout_s, FIRST_EXCEPTION)
        for future in done:
            future.result()
        if missing:
            raise TimeoutError(f"{len(missing)} of {len(futures)} ranks have not answered in {timeout_s:g} s")
        return [future.result() for future in futures]

    def _ask_for_futures(self, each: Sequence[orders.AnyOrder]) -> list[Future[Any]]:
        number = next(self._numbers)
        pairs = zip(self._links, each, strict=True)
        return [link.ask(number, self._encode(number, order)) for link, order in pairs]

    def _encode(self, number: int, order: orders.AnyOrder) -> Sequence[Frame]:
        return self._encoder.encode(orders.Envelope(number, order))

    def _find_asleep_parts(self) -> None:
        self._asleep = frozenset().union(*self._ask(orders.AsleepParts()))

    def _lose(self, rank: int, reason: str) -> None:
        """On the thread of the rank's link: the first that is lost takes the others along."""
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = True
        self._failure = RankLostError(self._describe_loss(rank, reason))
        self._children.kill()
        logger.error("%s; the ranks are ended", self._failure)
        for link in self._links:
            link.fail(self._failure)
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _describe_loss(self, rank: int, reason: str) -> str:
        if reason and (ended := self._children.first_end(_CAUSE_TIMEOUT_S)) is not None:
            rank, reason = ended, ""
        if reason:
            return f"rank {rank} failed: {reason}"
        end = self._children.describe_end(rank, _CAUSE_TIMEOUT_S) or "its connection has ended"
        return f"rank {rank} is gone: {end}"


def _check_device(config: ModelConfig, hosts: Hosts) -> None:
    if config.device.startswith("cuda:"):
        raise ValueError(
            f"device must be cpu or cuda with tensor_parallel_size {hosts.tensor_parallel_size}: "
            f"every rank has a GPU of its own, got {config.device}"
        )
    if config.device == "cuda" and config.num_cores_here > 1:
        raise ValueError(
            f"{config.num_cores_here} cores on a host with tensor_parallel_size {hosts.tensor_parallel_size} would "
            "share its GPUs: start each core by itself, with a CUDA_VISIBLE_DEVICES of its own"
        )
