"""One adapter, from the first that names it until its memory is given back."""

from concurrent.futures import Future

from core.wire.messages import LoRARequest


class Adapter:
    """Owned by the busy loop. ``path`` is where it is loaded from.

    ``key`` is what the executor knows it by: every load has one of its own.

    ``num_namesakes``: how many of its name there were before it. With the name it is part of the names of KV blocks: so
    what was computed with one is never found by requests of another, yet cores that load alike name alike.
    """

    def __init__(self, lora: LoRARequest, path: str, key: int, num_namesakes: int) -> None:
        self.lora = lora
        self.path = path
        self.key = key
        self.cache_name = f"{num_namesakes}:{lora.lora_name}"
        self.loading: Future[None] | None = None
        """None: not begun."""
        self.error: str | None = None
        """Why it could not be loaded."""
        self.is_loaded = False
        self.is_leaving = False
        """Nobody new may use it; who does may end first."""
        self.is_pinned = False
        self.num_requests = 0
        self.unanswered: list[Future[bool]] = []
        """Of those who asked for it to be loaded, then of those who asked for it to be gone."""

    def __repr__(self) -> str:
        state = "loaded" if self.is_loaded else "failed" if self.error else "loading" if self.loading else "not loaded"
        return f"Adapter({self.lora.lora_name!r}, id {self.lora.lora_int_id}, {state}, {self.num_requests} requests)"

    @property
    def is_evictable(self) -> bool:
        """Whether it may go to make room for another one."""
        return self.is_loaded and not self.is_pinned and self.num_requests == 0

    def is_other_than(self, lora: LoRARequest) -> bool:
        """Whether ``lora`` means another adapter, though by the same id. A request need not say the path."""
        return lora.lora_name != self.lora.lora_name or lora.lora_path not in ("", self.lora.lora_path)

    def promise(self) -> "Future[bool]":
        """Of an answer, for whoever waits."""
        future: Future[bool] = Future()
        self.unanswered.append(future)
        return future

    def answer(self, error: Exception | None = None) -> None:
        """Tell those who wait that it was done, or why not."""
        waiting, self.unanswered = self.unanswered, []
        for future in waiting:
            future.set_exception(error) if error else future.set_result(True)
