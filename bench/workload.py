"""What load to put on a server: the named workloads, and every number of them to be changed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Workload:
    """Greedy requests that ignore EOS, so that all have the same length.

    With a ``rate`` (requests/s) they arrive as a Poisson process, whatever the server does (open loop); without one,
    ``concurrency`` requests are kept running (closed loop). ``passes`` are measured one after another; they share the
    first ``shared_prefix_tokens`` of every prompt, so that the second finds them cached.
    """

    name: str
    prompt_tokens: int
    output_tokens: int
    num_requests: int
    concurrency: int = 1
    rate: float | None = None
    shared_prefix_tokens: int = 0
    passes: tuple[str, ...] = ("",)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.shared_prefix_tokens >= self.prompt_tokens:
            raise ValueError(
                f"shared_prefix_tokens must be less than prompt_tokens ({self.prompt_tokens}),"
                f" got {self.shared_prefix_tokens}"
            )


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("W1", prompt_tokens=128, output_tokens=128, num_requests=8),
        Workload("W2", prompt_tokens=128, output_tokens=128, num_requests=32, concurrency=32),
        Workload("W3", prompt_tokens=1800, output_tokens=32, num_requests=4),
        Workload(
            "W4",
            prompt_tokens=1024 + 32,
            shared_prefix_tokens=1024,
            output_tokens=16,
            num_requests=16,
            concurrency=16,
            passes=("cold", "warm"),
        ),
        Workload("G1", prompt_tokens=16, output_tokens=256, num_requests=32, concurrency=32),
        Workload("G2", prompt_tokens=16, output_tokens=256, num_requests=256, concurrency=32),
    )
}
"""W1 single stream, W2 batch, W3 long prompt, W4 shared prefix with a cold and a warm cache; G1 and G2 are for a null
core, which paces its tokens or sends them as fast as it can."""
