"""The LoRA adapters that requests may name: the same ones on every core."""

import asyncio
import itertools
import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from core.wire.messages import LoRARequest
from core.wire.sampling_params import Violation
from core.wire.version import shaped_lora
from service.cores.utility_calls import UtilityError
from service.engine_client import EngineClient
from service.errors import AlreadyExists, FailedPrecondition, InvalidRequest, NotFound, ServiceError, shown
from service.to_the_end import ToTheEnd

logger = logging.getLogger(__name__)

MAX_NAME_BYTES = 256
MAX_PATH_BYTES = 4096


class AdapterError(Exception):
    """An adapter that was to be there from the start is not."""


class Adapters:
    """Owned by the event loop; ``by_name`` may be read from any thread. Each load has an id that none had before.

    Cores that lose an adapter to make room, or that come in another's place, load it again when a request names it.
    """

    def __init__(self, engine: EngineClient, model_name: str) -> None:
        self._engine = engine
        self._model_name = model_name
        self._loaded: dict[str, LoRARequest] = {}
        self.by_name: Mapping[str, LoRARequest] = MappingProxyType(self._loaded)
        self._loading: set[str] = set()
        self._ids = itertools.count(1)
        self._work = ToTheEnd()

    def __repr__(self) -> str:
        return f"Adapters({sorted(self._loaded)}, loading {sorted(self._loading)})"

    def __len__(self) -> int:
        return len(self._loaded)

    async def load(self, name: str, path: str) -> None:
        """Have every core load the folder ``path``; if one cannot, none keeps it.

        Raises InvalidRequest, AlreadyExists for a name that is taken, FailedPrecondition with the core's message, and
        Unavailable without a core.
        """
        if violations := [*_violations("name", name, MAX_NAME_BYTES), *_violations("path", path, MAX_PATH_BYTES)]:
            raise InvalidRequest(violations)
        if name == self._model_name or name in self._loaded or name in self._loading:
            raise AlreadyExists(f"the name {shown(name)} is taken", reason="LORA_NAME_TAKEN")
        await self._work.run(self._load(LoRARequest(name, next(self._ids), path)))

    async def load_all(self, modules: Iterable[tuple[str, str]]) -> None:
        """Names with their paths, at the start. Raises AdapterError."""
        for name, path in modules:
            try:
                await self.load(name, path)
            except ServiceError as error:
                raise AdapterError(f"--lora-modules {name}={path}: {error}") from error

    async def unload(self, name: str) -> None:
        """Requests cannot name it any more; return when the last that does has ended and no core has it.

        Raises NotFound, FailedPrecondition with the core's message, Unavailable without a core.
        """
        lora = self._loaded.pop(name, None)
        if lora is None:
            raise NotFound(f"no LoRA adapter {shown(name)} is loaded", reason="LORA_NOT_FOUND")
        await self._work.run(self._call("remove_lora", lora.lora_int_id))

    async def mirror(self, loras: Iterable[LoRARequest]) -> None:
        """Have what another front end has had the cores load, and nothing else.

        Returns when the last request that names what is gone has ended.
        """
        wanted = {lora.lora_name: lora for lora in loras}
        gone = [lora for name, lora in self._loaded.items() if wanted.get(name) != lora]
        for lora in gone:
            del self._loaded[lora.lora_name]
        self._loaded.update(wanted | self._loaded)  # those that stay are the same to requests that are being read
        # Asked here too: it comes after every request that was sent from here.
        await asyncio.gather(*(self._work.run(self._call("remove_lora", lora.lora_int_id)) for lora in gone))

    def check_loaded(self, lora: LoRARequest | None) -> None:
        """Raises NotFound if ``lora`` was unloaded since it was looked up."""
        if lora is not None and self._loaded.get(lora.lora_name) is not lora:
            raise NotFound(f"no LoRA adapter {shown(lora.lora_name)} is loaded", reason="LORA_NOT_FOUND")

    async def _load(self, lora: LoRARequest) -> None:
        self._loading.add(lora.lora_name)
        try:
            await self._call("add_lora", shaped_lora(lora, self._engine.engines.wire_version))
        except ServiceError:
            await self._undo(lora)
            raise
        finally:
            self._loading.discard(lora.lora_name)
        self._loaded[lora.lora_name] = lora

    async def _undo(self, lora: LoRARequest) -> None:
        """On each core by itself: some may have it, others not, and one may be gone."""
        ranks = [engine.rank for engine in self._engine.engines.alive]
        calls = (self._engine.call_rank(rank, "remove_lora", lora.lora_int_id) for rank in ranks)
        for rank, result in zip(ranks, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(result, BaseException):
                logger.warning("the core of rank %d may have kept adapter %.100s: %s", rank, lora.lora_name, result)

    async def _call(self, method: str, argument: object) -> None:
        try:
            await self._engine.call_utility(method, argument)
        except UtilityError as error:
            cause = str(error).removeprefix(f"Call to {method} method failed: ")  # as cores of either kind begin
            raise FailedPrecondition(cause) from error


def _violations(field: str, value: str, max_bytes: int) -> list[Violation]:
    """What goes into messages, metrics and log lines."""
    size = len(value.encode(errors="surrogatepass"))  # which bytes of a command line that are no UTF-8 become
    if 1 <= size <= max_bytes and value.isprintable() and "," not in value:
        return []
    return [Violation(field, f"must be printable, without commas, and have 1 to {max_bytes} bytes, got {shown(value)}")]
