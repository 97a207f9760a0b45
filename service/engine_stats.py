"""How busy the core is, as its messages tell."""

from dataclasses import dataclass, field

from core.wire.messages import EngineCoreOutputs, EventType, SchedulerStats


@dataclass
class EngineStats:
    """The scheduler as last reported, and counts since the start. Written by the reader, read by anyone on the loop."""

    scheduler: SchedulerStats = field(default_factory=SchedulerStats)
    num_preemptions: int = 0
    num_prefix_cache_queries: int = 0
    num_prefix_cache_hits: int = 0

    def forget_load(self) -> None:
        """The core is gone: nothing runs or waits in it."""
        self.scheduler = SchedulerStats()

    def record(self, outputs: EngineCoreOutputs) -> None:
        """Take in one message: the prefix-cache counts in it are those of one step."""
        if (scheduler := outputs.scheduler_stats) is not None:
            self.scheduler = scheduler
            self.num_prefix_cache_queries += scheduler.prefix_cache_stats.queries
            self.num_prefix_cache_hits += scheduler.prefix_cache_stats.hits
        for output in outputs.outputs:
            if output.events:
                self.num_preemptions += sum(event.type is EventType.PREEMPTED for event in output.events)
