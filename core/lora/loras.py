"""The adapters of an engine: loaded when asked for or first used, unloaded when nobody uses them any more.

    add_lora, or a request that names it ──▶ begin ──▶ executor.load_lora ──▶ settle ──▶ requests may run with it
    remove_lora ──▶ leaving: no new request ──▶ its last request ends ──▶ executor.unload_lora

A load runs beside the steps: only the requests that need it wait. When there is no room, the adapter that was used
longest ago goes, of those that nobody uses.
"""

import itertools
import logging
from collections import Counter, OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future

from core.config import LoraConfig
from core.executor.interface import Executor
from core.lora.adapter import Adapter
from core.request import Request
from core.request_limits import RequestError
from core.wire.messages import LoRARequest
from core.wire.sampling_params import Violation

logger = logging.getLogger(__name__)


class Loras:
    """By the id that front ends gave them. Owned by the busy loop."""

    def __init__(self, config: LoraConfig, executor: Executor) -> None:
        self._config = config
        self._executor = executor
        self._adapters: OrderedDict[int, Adapter] = OrderedDict()
        """Of those used, the last used comes last."""
        self._loading: list[Adapter] = []
        self._num_in_memory = 0
        """Loaded, loading and leaving ones."""
        self._keys = itertools.count(1)
        self._num_of_name: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"Loras({list(self._adapters.values())}, {self._num_in_memory} in memory)"

    @property
    def is_loading(self) -> bool:
        """Whether ``settle`` will have something to tell."""
        return bool(self._loading)

    @property
    def ids(self) -> list[int]:
        """Of those that are loaded."""
        return sorted(lora_id for lora_id, adapter in self._adapters.items() if adapter.is_loaded)

    def add(self, lora: LoRARequest) -> "Future[bool]":
        """Load it, unless it is there. Raises ValueError for an id that another adapter has, and for a path that is not
        allowed; RuntimeError without room.

        ``load_inplace``: it takes the place of the one that has its id, whose requests go on with what they began with.
        """
        adapter = self._adapters.get(lora.lora_int_id)
        if adapter is None or lora.load_inplace:
            adapter = self._make(lora)
        elif adapter.is_other_than(lora):
            raise ValueError(_taken(adapter, lora))
        if adapter.loading is None and not self._begin(adapter):
            bound = f"{self._config.max_in_memory} (--max-cpu-loras) adapters are in memory"
            raise RuntimeError(f"{bound}, and each of them is in use or pinned")
        self._adapters.setdefault(lora.lora_int_id, adapter)
        answer = adapter.promise()
        if adapter.is_loaded:
            adapter.answer()
        return answer

    def remove(self, lora_id: int) -> "Future[bool] | bool":
        """True once it is gone, which its last request ends before; False if there is none of that id."""
        adapter = self._adapters.pop(lora_id, None)
        if adapter is None:
            return False
        adapter.is_leaving = True
        if self._is_gone(adapter):
            return True
        return adapter.promise()

    def remove_all(self) -> None:
        """For an engine without requests."""
        for lora_id in list(self._adapters):
            self.remove(lora_id)

    def pin(self, lora_id: int) -> bool:
        """Never let it go to make room. Raises ValueError if it is not loaded, or the last that could go."""
        adapter = self._adapters.get(lora_id)
        if adapter is None or not adapter.is_loaded:
            raise ValueError(f"adapter {lora_id} is not loaded")
        num_others = sum(other.is_pinned for other in self._adapters.values() if other is not adapter)
        if num_others + 1 >= self._config.max_in_memory:
            raise ValueError(
                f"at most {self._config.max_in_memory - 1} adapters may be pinned: --max-cpu-loras less one"
            )
        adapter.is_pinned = True
        return True

    def hold(self, request: Request) -> None:
        """Keep the adapter of ``request`` until ``release``. Raises RequestError if there is none that it could be."""
        lora = request.lora_request
        assert lora is not None, "asked by the caller"
        adapter = self._adapters.get(lora.lora_int_id)
        if adapter is None:
            if not lora.lora_path:
                raise RequestError(Violation("lora_request", f"names adapter {lora.lora_int_id}, which is not loaded"))
            adapter = self._adapters[lora.lora_int_id] = self._make_for_request(lora)
        elif adapter.is_other_than(lora):
            raise RequestError(Violation("lora_request", _taken(adapter, lora)))
        self._adapters.move_to_end(lora.lora_int_id)
        adapter.num_requests += 1
        request.adapter = adapter

    def release(self, adapter: Adapter) -> None:
        """One of its requests has ended."""
        adapter.num_requests -= 1
        if adapter.loading is None and adapter.num_requests == 0 and not adapter.is_leaving:
            self.remove(adapter.lora.lora_int_id)
        self._is_gone(adapter)

    def choose(self, waiting: Iterable[Request], running: Iterable[Request]) -> Request | None:
        """The first of ``waiting`` that may run beside ``running``.

        At most ``max_loras`` adapters run at once. Whoever waits for that keeps those behind it with adapters waiting
        too, or it might wait for ever. Those without pass; who waits for a load keeps nobody.
        """
        active = {request.adapter for request in running if request.adapter is not None}
        is_full = False
        for request in waiting:
            if request.adapter is None:
                return request
            if is_full or not self._is_ready(request.adapter):
                continue
            if request.adapter in active or len(active) < self._config.max_loras:
                return request
            is_full = True
        return None

    def settle(self) -> bool:
        """Take in the loads that have ended; whether some have failed."""
        done = [adapter for adapter in self._loading if adapter.loading is not None and adapter.loading.done()]
        for adapter in done:
            self._loading.remove(adapter)
            self._settle(adapter)
        return any(adapter.error is not None for adapter in done)

    def check_integrity(self, requests: Iterable[Request]) -> None:
        """Raise RuntimeError unless exactly these requests use the adapters that are used."""
        found = Counter(request.adapter for request in requests if request.adapter is not None)
        known = {adapter: adapter.num_requests for adapter in self._adapters.values() if adapter.num_requests}
        if any(adapter.num_requests != count for adapter, count in found.items()) or not known.keys() <= found.keys():
            raise RuntimeError(f"requests use {dict(found)}, known are {known}")

    def _make(self, lora: LoRARequest) -> Adapter:
        """Raises ValueError for a path that is not allowed."""
        path, num_namesakes = self._config.checked(lora.lora_path), self._num_of_name[lora.lora_name]
        self._num_of_name[lora.lora_name] += 1
        return Adapter(lora, path, next(self._keys), num_namesakes)

    def _make_for_request(self, lora: LoRARequest) -> Adapter:
        try:
            return self._make(lora)
        except ValueError as error:
            raise RequestError(Violation("lora_request", str(error))) from error

    def _is_ready(self, adapter: Adapter) -> bool:
        if adapter.loading is None:
            self._begin(adapter)
        return adapter.is_loaded

    def _begin(self, adapter: Adapter) -> bool:
        """Start to load it; False if there is no room."""
        if self._num_in_memory >= self._config.max_in_memory and not self._evict():
            return False
        self._num_in_memory += 1
        adapter.loading = self._executor.load_lora(adapter.key, adapter.path)
        self._loading.append(adapter)
        return True

    def _evict(self) -> bool:
        for lora_id, adapter in self._adapters.items():
            if adapter.is_evictable:
                logger.info("adapter %.100r goes, to make room", adapter.lora.lora_name)
                return self.remove(lora_id) is True
        return False

    def _settle(self, adapter: Adapter) -> None:
        assert adapter.loading is not None, "it was begun"
        lora_id = adapter.lora.lora_int_id
        if (error := adapter.loading.exception()) is not None:
            logger.error("adapter %.100r could not be loaded: %s", adapter.lora.lora_name, error)
            adapter.error = str(error)
            self._num_in_memory -= 1
            self._executor.unload_lora(adapter.key)
            if self._adapters.get(lora_id) is adapter:
                del self._adapters[lora_id]
            adapter.answer(RuntimeError(adapter.error))
            return
        adapter.is_loaded = True
        if not adapter.is_leaving:
            if self._adapters.get(lora_id) is not adapter:
                self.remove(lora_id)
                self._adapters[lora_id] = adapter
            adapter.answer()
        self._is_gone(adapter)

    def _is_gone(self, adapter: Adapter) -> bool:
        """Whether it is out of memory: it goes now if it is to and nobody uses it."""
        if not adapter.is_leaving or adapter.num_requests or adapter in self._loading:
            return False
        if adapter.is_loaded:
            adapter.is_loaded = False
            self._num_in_memory -= 1
            self._executor.unload_lora(adapter.key)
        adapter.answer()
        return True


def count_by_name(requests: Iterable[Request]) -> dict[str, int]:
    """How many of ``requests`` name which adapter."""
    return dict(Counter(request.lora_request.lora_name for request in requests if request.lora_request is not None))


def _taken(adapter: Adapter, lora: LoRARequest) -> str:
    """Why a request, or a call, does not mean what it says."""

    def shown(one: LoRARequest) -> str:
        return f"{one.lora_name[:100]!r} of {one.lora_path[:200]!r}"

    return f"must not name another adapter by id {lora.lora_int_id}, which is {shown(adapter.lora)}, got {shown(lora)}"
