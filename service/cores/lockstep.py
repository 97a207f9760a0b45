"""What the gateway does for cores that step in lockstep.

INIT         ──▶ every core           where the coordinator listens, and where the ranks meet
coordinator  ◀── CoordinatorProcess   a child of the gateway; the cores do not notice its end: ``coordinator_lost``
EngineClient ──▶ WaveClient ◀──▶ coordinator
"""

import dataclasses
import logging
from pathlib import Path

import msgspec

from core.wire.messages import EngineAddresses, EngineInit, ParallelConfig
from service.config import CoreConfig
from service.cores.coordinator_process import CoordinatorProcess
from service.cores.core_process import CoreLoadError
from service.cores.wave_client import WaveClient
from service.reserved_ports import ReservedPorts

logger = logging.getLogger(__name__)

_NUM_PORTS = 6
"""One for each group that the ranks make: ours make one; vLLM's take the first for one, and others off the list."""


class Lockstep:
    """Started once. ``waves`` and where they are told are None until then."""

    def __init__(self, config: CoreConfig, folder: Path) -> None:
        """``folder`` is private to this gateway."""
        self._config = config
        self._folder = folder
        self._coordinator: CoordinatorProcess | None = None
        self._ports: ReservedPorts | None = None
        self.waves: WaveClient | None = None
        self.waves_address: str | None = None

    async def start(self, addresses: EngineAddresses) -> EngineInit:
        """Bring up the coordinator. What each core is to be told, ``addresses`` included. Raises CoreLoadError."""
        size, host, curve = self._config.data_parallel_size, self._config.tcp_host, self._config.curve
        command = (*self._config.coordinator_command, *(curve.flags if curve else ()))
        self._coordinator = CoordinatorProcess(command, size, self._folder, host)
        logger.info("coordinator started, pid %d", self._coordinator.pid)
        coordinator = dataclasses.asdict(await self._coordinator.addresses())
        self.waves_address = coordinator["frontend_stats_publish_address"]
        self.waves = WaveClient(self.waves_address, curve.server().itself_as_client if curve else None)
        return EngineInit(msgspec.structs.replace(addresses, **coordinator), self._meeting(host or "127.0.0.1", size))

    async def coordinator_lost(self) -> str:
        """Return when the coordinator has ended, with how."""
        assert self._coordinator is not None, "started"
        return f"the coordinator's process {self._coordinator.pid} ended with {await self._coordinator.exited()}"

    async def stop(self) -> None:
        """When the cores have ended. May be called without ``start``."""
        if self.waves is not None:
            self.waves.close()
        if self._ports is not None:
            self._ports.close()
        if self._coordinator is not None:
            await self._coordinator.end()

    def _meeting(self, host: str, size: int) -> ParallelConfig:
        """Rank 0 is taken to be on this machine."""
        try:
            self._ports = ReservedPorts(host, _NUM_PORTS)
        except OSError as error:
            raise CoreLoadError(f"the ranks cannot meet at {host}: {error}") from error
        first, *others = self._ports.numbers
        return ParallelConfig(host, first, others, size)
