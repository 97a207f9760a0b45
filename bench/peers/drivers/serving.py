"""What the drivers share: loads come in by standard input, records go out by standard output.

    bench.peers ──{"prompts", "output_tokens", "concurrency", "shared_prefix_tokens"}──▶ driver
                ◀──────────────[record of each request], or {"ready": true} first──────── driver

One JSON value a line. Times are of the monotonic clock, which all processes of a machine share.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

Prompts = Sequence[Sequence[int]]


class Record:
    """Of one request: what ``bench.load.RequestRecord`` has."""

    def __init__(self, prompt: Sequence[int], start: float) -> None:
        self.start = start
        self.end = start
        self.arrivals: list[tuple[float, int]] = []
        self.num_prompt_tokens = len(prompt)
        self.num_cached_tokens = 0

    def note(self, num_tokens: int) -> None:
        """They arrive now."""
        self.end = time.monotonic()
        self.arrivals.append((self.end, num_tokens))


class Batch:
    """Requests that are sent together."""

    def __init__(self, prompts: Prompts, output_tokens: int, shared_prefix_tokens: int) -> None:
        self.prompts = prompts
        self.output_tokens = output_tokens
        self.shared_prefix_tokens = shared_prefix_tokens
        start = time.monotonic()
        self.records = [Record(prompt, start) for prompt in prompts]


def serve(generate: Callable[[Batch], None]) -> None:
    """Until standard input ends. ``generate`` fills in the records of its batch."""
    # Libraries print; what they do goes to the log.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        print(json.dumps(_run(generate, **json.loads(line))), file=answers)


def _run(
    generate: Callable[[Batch], None],
    prompts: Prompts,
    output_tokens: int,
    concurrency: int,
    shared_prefix_tokens: int,
) -> list[dict[str, Any]]:
    records: list[Record] = []
    for first in range(0, len(prompts), concurrency):
        batch = Batch(prompts[first : first + concurrency], output_tokens, shared_prefix_tokens)
        generate(batch)
        records += batch.records
    return [vars(record) for record in records]
