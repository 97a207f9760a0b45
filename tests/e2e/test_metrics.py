"""/metrics of a real server."""

import asyncio

from sluicegate_client import AsyncClient
from tests.e2e.server import MODEL, Server
from tests.service.metrics.scrape import scrape

NUM_STREAMS = 20


async def _leave_all_at_once(address: str) -> None:
    async with AsyncClient(address) as client:
        streams = [client.stream(f"Story {i}:", max_tokens=2000, ignore_eos=True) for i in range(NUM_STREAMS)]
        await asyncio.gather(*(anext(stream) for stream in streams))
        for stream in streams:
            stream.cancel()


def test_nothing_runs_when_everyone_has_left(server: Server) -> None:
    """Twenty streams cancelled at once: the gauges go back to nothing, and each counts as aborted, tokens and all."""
    before = scrape(server.metrics_address)
    asyncio.run(_leave_all_at_once(server.address))
    server.wait_until_idle()
    after = scrape(server.metrics_address)

    def grown(name: str, **labels: str) -> float:
        return after.engine(name, MODEL, **labels) - before.engine(name, MODEL, **labels)

    for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert after.engine(gauge, MODEL) == 0, gauge
    assert grown("request_success_total", finished_reason="abort") == NUM_STREAMS
    assert grown("request_prompt_tokens_count") == grown("e2e_request_latency_seconds_count") == NUM_STREAMS
    assert grown("generation_tokens_total") == grown("request_generation_tokens_sum") >= NUM_STREAMS
    assert grown("prompt_tokens_total") == grown("request_prompt_tokens_sum")
    assert grown("time_to_first_token_seconds_count") == grown("request_queue_time_seconds_count") == NUM_STREAMS
