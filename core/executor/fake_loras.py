"""The adapters that FakeExecutor has, each with a key and the path it came from."""

from collections.abc import Iterable
from concurrent.futures import Future

from core.executor.fake_request import FakeExecutorError


class FakeLoras:
    """``broken_paths``: those that cannot be loaded. ``is_slow``: loads end with ``finish_loads`` alone."""

    def __init__(self) -> None:
        self.paths: dict[int, str] = {}
        """Of those loaded, by key."""
        self.failed_keys: set[int] = set()
        """Of loads that have failed and are not unloaded yet."""
        self.broken_paths: set[str] = set()
        self.is_slow = False
        self._loads: list[tuple[int, str, Future[None]]] = []

    def load(self, key: int, path: str) -> "Future[None]":
        future: Future[None] = Future()
        self._loads.append((key, path, future))
        if not self.is_slow:
            self.finish_loads()
        return future

    def unload(self, key: int) -> None:
        if key in self.failed_keys:
            self.failed_keys.remove(key)
        elif self.paths.pop(key, None) is None:
            raise FakeExecutorError(f"adapter {key} is to be unloaded, but is not known")

    def finish_loads(self) -> None:
        """Those that were begun."""
        loads, self._loads = self._loads, []
        for key, path, future in loads:
            if path in self.broken_paths:
                self.failed_keys.add(key)
                future.set_exception(ValueError(f"{path}/adapter_config.json: r is missing"))
            else:
                self.paths[key] = path
                future.set_result(None)

    def check(self, keys: Iterable[int | None]) -> None:
        """Raises FakeExecutorError for requests whose adapter is not loaded."""
        if unknown := {key for key in keys if key is not None} - self.paths.keys():
            raise FakeExecutorError(f"adapters {unknown} are to be run with, but are not loaded")
